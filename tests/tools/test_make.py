import re

import pytest

from driftlaw.errors import DataError
from tests.reports.example_records import make_record, write_record
from tests.reports.layer_records import EARLY, FLAT, make_layer_record
from tools.results.commands import tidy_command
from tools.results.make import make_results

SETTINGS = {"learning_rate": 1e-3, "tau": 1.0, "consistency_weight": 0.1}
MODEL = {"name": "wrn_28_10", "weights": "wrn_28_10-cifar10", "sha256": "a" * 64}


def put(root, place, record):
    number = len(list(root.rglob("*.jsonl")))
    return write_record(record, root / "results" / place / f"{record.method}-{number}.jsonl")


def run(method, error, *, settings=None, **options):
    header = {"model": MODEL, "command": f"driftlaw reproduce table1 --methods {method} --out /somewhere/else"}
    return make_record(method, [error] * 15, header=header, settings=settings or {}, **options)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("checkout")
    for seed in (1, 2):
        put(tmp_path, "table1/cifar10-c", run("law", 15 + seed, settings=SETTINGS, seed=seed))
        put(tmp_path, "table1/cifar10-c", run("tent", 20 + seed, seed=seed))
    for tau, error in [(0.0, 80), (0.6, 30), (1.0, 20), (1.2, 25)]:
        put(tmp_path, "table10/cifar10-c", run("law", error, settings={**SETTINGS, "tau": tau}))
    for domain, scale in [("clean", 1.0), ("gaussian_noise", 3.0), ("defocus_blur", 2.0)]:
        put(tmp_path, "fig4/cifar10-c", make_layer_record(domain, sharpness=[scale * value for value in EARLY]))
    for domain, weights in [("gaussian_noise", FLAT), ("defocus_blur", EARLY)]:
        put(tmp_path, "fig3/cifar10-c", make_layer_record(domain, weights=weights))
    put(tmp_path, "odd-idea", run("law", 30))
    return tmp_path


@pytest.fixture(scope="module")
def results(checkout):
    return make_results(checkout)


def section(text, title):
    return text.partition(f"## {title}")[2].partition("\n## ")[0]


def test_the_same_records_give_the_same_bytes(checkout, results):
    assert make_results(checkout) == results


def test_there_is_a_section_for_every_experiment_that_was_run_and_a_line_for_the_rest(results):
    text = results.text
    headings = re.findall(r"^## (.*)$", text, flags=re.MULTILINE)
    assert headings == [
        "What was claimed, and whether it holds",
        "Table 1: continual adaptation, severity 5",
        "Table 10: τ from 0 on",
        "Figure 1b: error against FLOPs",
        "Figure 3: layer weights under noise and under blur",
        "Figure 4: source against target, before scaling",
        "Figure 5: the Fisher diagonal of every layer",
        "`odd-idea`",
    ]
    last = text.strip().splitlines()[-1]
    assert last.startswith("Not run yet: `driftlaw reproduce table2`, ")
    assert "fig1a" in last
    assert "fig5" not in last


def test_a_row_shows_ours_theirs_and_its_records(checkout, results):
    told = section(results.text, "Table 1")
    assert "16.5 ± 0.71** | 15.7 ± 0.06 | +0.8 |" in told
    (line,) = [line for line in told.splitlines() if line.startswith("| TENT | [1]")]
    assert "+5.00 [+5.00, +5.00]" in line
    for path in re.findall(r"\]\((results/[^)]*)\)", told):
        assert (checkout / path).is_file()
    assert "```sh\ndriftlaw reproduce table1 --methods law\n" in told
    assert "/somewhere" not in told
    assert "Protocol: dataset: cifar10-embedded" in told


def test_every_record_is_linked(checkout, results):
    text = results.text
    for path in (checkout / "results").rglob("*.jsonl"):
        assert path.relative_to(checkout).as_posix() in text


def test_claims_are_judged_by_the_numbers(results):
    text = results.text
    told = section(text, "Table 10")
    assert "- holds: cifar10-embedded · continual · wrn\\_28\\_10: the error has a minimum in τ (lowest at 1; " in told
    assert "the error grows towards τ = 0 and is largest there, to 1 point" in told
    assert "10 of 10 claims hold" in text
    assert "blur concentrates weight in early layers" in section(text, "Figure 3")


def test_figures_come_with_their_text_and_lie_where_the_text_says(results):
    linked = set(re.findall(r"!\[[^\n]*\]\((results/figures/[^)]*)\)", results.text))
    assert linked == set(results.figures)
    assert {"results/figures/fig3.svg", "results/figures/fig4.svg", "results/figures/table10.svg"} <= linked
    for svg in results.figures.values():
        assert svg.startswith("<svg")
        assert "prefers-color-scheme: dark" in svg


def test_a_network_that_the_paper_does_not_have_is_not_put_beside_it(tmp_path):
    put(tmp_path, "embedded", make_record("law", [26] * 15))
    told = section(make_results(tmp_path).text, "The embedded network")
    assert "| method | seeds | ours, mean | above the lowest |" in told
    assert "model wrn\\_16\\_1 (paper wrn\\_28\\_10)" in told


def test_what_a_person_wrote_of_a_folder_opens_its_section(tmp_path):
    put(tmp_path, "odd-idea", run("law", 30))
    (tmp_path / "results" / "odd-idea" / "notes.md").write_text("Why we tried this.\n", encoding="utf-8")
    assert "## `odd-idea`\n\nWhy we tried this.\n" in make_results(tmp_path).text


def test_what_goes_beyond_error_is_shown_as_far_as_records_tell(results):
    told = section(results.text, "Table 1")
    assert "worst 10, %" in told
    assert "ECE" not in told


def test_no_records_are_told(tmp_path):
    (tmp_path / "results").mkdir()
    with pytest.raises(DataError, match="No run records"):
        make_results(tmp_path)


@pytest.mark.parametrize(
    ("command", "tidy"),
    [
        ("driftlaw run a --out=/x/y --seeds 1", "driftlaw run a --seeds 1"),
        ("driftlaw run a --data-dir /d --json -q", "driftlaw run a"),
        ("driftlaw run /home/me/preset.toml", "driftlaw run preset.toml"),
        (None, ""),
    ],
)
def test_a_command_is_told_without_its_machine(command, tidy):
    assert tidy_command(command) == tidy
