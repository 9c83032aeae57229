import pytest
from rich.console import Console

from driftlaw.reports import render_terminal
from tests.reports.example_records import CORRUPTIONS, make_record


def shown(records, width, **options):
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(render_terminal(records, **options))
    return capture.get()


@pytest.fixture
def records():
    errors = {"source": 45, "norm": 30, "tent": 28, "law": 24}
    return [make_record(name, [error] * 15, seed=seed) for name, error in errors.items() for seed in (1, 2)]


def test_four_methods_with_spread_fit_80_characters(records):
    text = shown(records, 80)
    assert max(map(len, text.splitlines())) <= 80
    heading = next(line for line in text.splitlines() if "Source" in line)
    assert heading.split() == ["Source", "BN-1", "TENT", "LAW"]


def test_one_line_per_corruption_and_the_mean(records):
    starts = [line.split()[0] for line in shown(records, 120).splitlines() if line.strip()]
    assert [name for name in starts if name in CORRUPTIONS] == CORRUPTIONS
    assert "mean" in starts


def test_mean_and_difference_from_source(records):
    lines = {line.split()[0]: line for line in shown(records, 100).splitlines() if line.strip()}
    assert lines["mean"].split("±")[-2].split()[-1] == "24.0"
    assert lines["vs"].split()[-1] == "−21.0"


def test_narrow_terminal_gets_several_grids(records):
    text = shown(records, 50)
    assert text.count("gaussian_noise") > 1
    assert all(title in text for title in ("Source", "BN-1", "TENT", "LAW"))


def test_names_are_not_parsed_as_markup():
    assert "[bold]x" in shown([make_record(header={"title": "[bold]x"})], 80)


def test_unfinished_run_is_labelled():
    text = shown([make_record(finished=False, batches_done=3)], 100)
    assert "unfinished:" in text
    assert "3 of 30" in text


def test_comparison_with_a_table_of_the_paper(records):
    text = shown(records, 160, paper_table=1)
    law = [line.split() for line in text.splitlines() if line.split()[:1] == ["LAW"]]
    assert [words[:8] for words in law if "15.7" in words] == [["LAW", "yes", "2", "24.0", "±", "0.00", "15.7", "±"]]
    assert "Differences from the paper: model wrn_16_1 (paper wrn_28_10)" in text
    assert "paper" not in shown(records, 160)


def test_method_that_needs_training_data_is_labelled():
    text = shown([make_record("rmt"), make_record("law")], 80)
    assert [line.split() for line in text.splitlines() if "train" in line] == [["train"]]
