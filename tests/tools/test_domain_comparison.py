"""tools/results/domain_comparison.py."""

from driftlaw.reports.published import compare_with_paper, paper_table
from driftlaw.reports.tables import make_tables
from tests.reports.example_records import CORRUPTIONS, make_record
from tools.results.domain_comparison import compare_domains

PAPER = {row.method: row.errors for row in paper_table(1).rows if row.dataset == "imagenet-c"}
KERAS = {"name": "resnet50_keras", "weights": "resnet50-imagenet", "sha256": "a" * 64}
OTHER = {"name": "efficientnet_lite0", "weights": "efficientnet_lite0-imagenet", "sha256": "b" * 64}


def run(method, shift, *, model=KERAS, domains=CORRUPTIONS, **stream):
    errors = {name: PAPER[method][name] + shift.get(name, 0.0) for name in domains}
    stream = {"dataset": {"name": "imagenet"}, "images_per_domain": 1000, "corruptions": list(domains)} | stream
    return make_record(method, errors, batch_size=1000, batches_per_domain=1, header={"model": model}, stream=stream)


def blocks(*records):
    return compare_domains([compare_with_paper(table, prefer=[1]) for table in make_tables(records)])


def test_domains_are_compared_with_the_paper():
    heading, table, deviation, lines = blocks(run("source", {"fog": 6.3, "pixelate": -9.0}), run("norm", {"fog": -2.9}))
    assert heading.endswith("resnet50\\_keras · 1,000 images per corruption")
    assert deviation == "The standard error of an error on 1,000 images is at most 1.6."
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    assert rows[0] == ["corruption", "Source", "paper", "difference", "BN-1", "paper", "difference"]
    assert [row[0] for row in rows[2:]] == [name.replace("_", r"\_") for name in CORRUPTIONS]
    assert rows[2 + CORRUPTIONS.index("fog")] == ["fog", "82.2", "75.9", "+6.3", "49.2", "52.1", "−2.9"]
    assert lines.splitlines() == [
        "- Source: 13 of 15 corruptions are within 3 percentage points of the paper. "
        "The others: fog +6.3, pixelate −9.0.",
        "- BN-1: 15 of 15 corruptions are within 3 percentage points of the paper.",
    ]


def test_another_model_names_the_model_of_the_paper_and_claims_nothing():
    _, table, _ = blocks(run("source", {}, model=OTHER))
    assert table.splitlines()[0] == "| corruption | Source | paper, resnet50 | difference |"


def test_the_same_run_on_an_archive_is_a_column():
    same = run("source", {"fog": 5.0}, domains=["fog"], archive="theirs")
    fewer_images = run("source", {"fog": 9.0}, domains=["fog"], archive="other", images_per_domain=500)
    _, table, *_ = blocks(run("source", {"fog": 6.3}), same, fewer_images)
    lines = table.splitlines()
    assert lines[0] == "| corruption | Source | paper | difference | theirs |"
    assert lines[2 + CORRUPTIONS.index("fog")] == "| fog | 82.2 | 75.9 | +6.3 | 80.9 |"
    assert lines[2].endswith("| – |")
