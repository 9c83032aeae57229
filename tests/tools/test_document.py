"""Tests of tools.results.document."""

import re

import pytest

from driftlaw.errors import DataError
from tests.reports.example_records import make_record, write_record
from tests.reports.layer_records import EARLY, FLAT, make_layer_record
from tools.results.commands import tidy_command
from tools.results.document import make_results

SETTINGS = {"learning_rate": 1e-3, "tau": 1.0, "consistency_weight": 0.1}
MODEL = {"name": "wrn_28_10", "weights": "wrn_28_10-cifar10", "sha256": "a" * 64}


def add_record(root, folder, record):
    number = len(list(root.rglob("*.jsonl")))
    return write_record(record, root / "results" / folder / f"{record.method}-{number}.jsonl")


def run(method, error, *, settings=None, **options):
    header = {"model": MODEL, "command": f"driftlaw reproduce table1 --methods {method} --out /somewhere/else"}
    return make_record(method, [error] * 15, header=header, settings=settings or {}, **options)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("checkout")
    for seed in (1, 2):
        add_record(tmp_path, "table1/cifar10-c", run("law", 15 + seed, settings=SETTINGS, seed=seed))
        add_record(tmp_path, "table1/cifar10-c", run("tent", 20 + seed, seed=seed))
    for tau, error in [(0.0, 80), (0.6, 30), (1.0, 20), (1.2, 25)]:
        add_record(tmp_path, "table10/cifar10-c", run("law", error, settings={**SETTINGS, "tau": tau}))
    for domain, scale in [("clean", 1.0), ("gaussian_noise", 3.0), ("defocus_blur", 2.0)]:
        add_record(tmp_path, "fig4/cifar10-c", make_layer_record(domain, sharpness=[scale * value for value in EARLY]))
    for domain, weights in [("gaussian_noise", FLAT), ("defocus_blur", EARLY)]:
        add_record(tmp_path, "fig3/cifar10-c", make_layer_record(domain, weights=weights))
    add_record(tmp_path, "other-runs", run("law", 30))
    return tmp_path


@pytest.fixture(scope="module")
def results(checkout):
    return make_results(checkout)


def section(text, title):
    return text.partition(f"## {title}")[2].partition("\n## ")[0]


def test_output_is_reproducible(checkout, results):
    assert make_results(checkout) == results


def test_sections_for_finished_experiments_and_a_list_of_missing_ones(results):
    text = results.text
    headings = re.findall(r"^## (.*)$", text, flags=re.MULTILINE)
    assert headings == [
        "Claims of the paper",
        "Table 1: continual adaptation, severity 5",
        "Table 10: τ starting at 0",
        "Figure 1b: error and FLOPs",
        "Figure 3: layer weights under noise and blur",
        "Figure 4: layer importance on source and target images",
        "Figure 5: Fisher diagonal per layer",
        "`other-runs`",
    ]
    last = text.strip().splitlines()[-1]
    assert last.startswith("Not run yet: `driftlaw reproduce table2`, ")
    assert "fig1a" in last
    assert "fig5" not in last


def test_row_has_our_error_the_papers_and_links_to_records(checkout, results):
    content = section(results.text, "Table 1")
    assert "16.5 ± 0.71** | 15.7 ± 0.06 | +0.8 |" in content
    (line,) = [line for line in content.splitlines() if line.startswith("| TENT | [1]")]
    assert "+5.00 [+5.00, +5.00]" in line
    for path in re.findall(r"\]\((results/[^)]*)\)", content):
        assert (checkout / path).is_file()
    assert "```sh\ndriftlaw reproduce table1 --methods law\n" in content
    assert "/somewhere" not in content
    assert "Protocol: dataset: cifar10-embedded" in content


def test_every_record_is_linked(checkout, results):
    text = results.text
    for path in (checkout / "results").rglob("*.jsonl"):
        assert path.relative_to(checkout).as_posix() in text


def test_claims_are_checked(results):
    text = results.text
    content = section(text, "Table 10")
    assert (
        "- holds: cifar10-embedded · continual · wrn\\_28\\_10: the error has a minimum in τ (lowest at 1; " in content
    )
    assert "the error grows towards τ = 0 and is largest there, within 1 percentage point" in content
    assert "10 of 10 claims hold" in text
    assert "blur concentrates weight in early layers" in section(text, "Figure 3")


def test_figures_are_linked(results):
    linked = set(re.findall(r"!\[[^\n]*\]\((results/figures/[^)]*)\)", results.text))
    assert linked == set(results.figures)
    assert {"results/figures/fig3.svg", "results/figures/fig4.svg", "results/figures/table10.svg"} <= linked
    for svg in results.figures.values():
        assert svg.startswith("<svg")
        assert "prefers-color-scheme: dark" in svg


def test_other_models_are_not_compared_with_the_paper(tmp_path):
    add_record(tmp_path, "embedded", make_record("law", [26] * 15))
    content = section(make_results(tmp_path).text, "Embedded model")
    assert "| method | seeds | ours, mean | vs. lowest |" in content
    assert "model wrn\\_16\\_1 (paper wrn\\_28\\_10)" in content


def test_notes_open_the_section(tmp_path):
    add_record(tmp_path, "other-runs", run("law", 30))
    (tmp_path / "results" / "other-runs" / "notes.md").write_text("Purpose of these runs.\n", encoding="utf-8")
    assert "## `other-runs`\n\nPurpose of these runs.\n" in make_results(tmp_path).text


def test_metrics_are_shown_if_they_were_recorded(results):
    content = section(results.text, "Table 1")
    assert "worst 10, %" in content
    assert "ECE" not in content


def test_missing_records_are_reported(tmp_path):
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
def test_commands_are_shown_without_machine_options(command, tidy):
    assert tidy_command(command) == tidy
