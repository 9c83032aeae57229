import json

import pytest
from rich.console import Console

from driftlaw.errors import UsageError
from driftlaw.records import RunRecord
from driftlaw.reports import build_report, make_tables, render_terminal
from driftlaw.reports.columns import COLUMNS, FOR_MEASURES, cell_data, cell_text, parse_columns
from tests.reports.example_records import in_rounds, make_record

ALL = tuple(COLUMNS)


def measured(method="law", *, seed=1, wrong_after=30, drift=(0.1, 0.3), **options):
    """Return a run of 15 domains, 8 batches each, with every measure in it."""
    record = make_record(method, seed=seed, batches_a_domain=8, **options)
    for line in record.batches:
        line["calibration"] = {"count": [50, 50], "confidence": [20.0, 45.0], "correct": [10, 40]}
    record.batches[-1]["drift"] = list(drift)
    clean = {"images": 200, "wrong_before": 20, "wrong_after": wrong_after}
    header = record.header | {"measures": {"calibration": {}, "forgetting": {}, "drift": {"tensors": ["a", "b|c"]}}}
    return RunRecord(header, record.batches, record.closing | {"clean": clean}, record.path)


def row_of(*records):
    return make_tables(records)[0].rows[0]


def test_every_column_has_its_figure():
    row = row_of(measured())
    told = {name: cell_text(row, name) for name in ALL}
    assert told == {
        "error": "20.0",
        "ece": "15.0",
        "clean": "15.0 (+5.0)",
        "first_round": "–",
        "last_round": "–",
        "worst": "20.0",
        "recovery": "0.0",
        "drift": "20.0",
        "ms": "400",
        "flops": "432.0 M",
    }


def test_a_stream_that_comes_round_has_a_first_and_a_last_round():
    runs = [in_rounds(make_record(errors=[20, 30, 40], seed=seed), [0, 1, 1]) for seed in (1, 2)]
    assert [cell_text(row_of(*runs), name) for name in ("first_round", "last_round")] == ["20.0 ± 0.00", "35.0 ± 0.00"]


def test_several_seeds_give_a_mean_and_its_spread():
    row = row_of(measured(), measured(seed=2, wrong_after=40))
    assert cell_text(row, "clean") == "17.5 ± 3.54 (+7.5)"
    assert cell_data(row, "clean") == {"mean": 17.5, "std": 3.5355}


def test_what_a_record_does_not_say_is_a_dash():
    row = row_of(make_record())
    assert [cell_text(row, name) for name in ("ece", "clean", "recovery", "drift")] == ["–"] * 4
    assert cell_data(row, "ece") == {"mean": None, "std": None}


def test_an_unfinished_run_has_costs_alone():
    row = row_of(make_record(finished=False, batches_done=20))
    assert [name for name in ALL if cell_text(row, name) != "–"] == ["ms", "flops"]


def test_a_domain_that_never_settles_makes_the_figure_a_bound():
    record = measured()
    for line, wrong in zip(record.batches, [90] * 4 + [0, 90, 90, 0], strict=False):
        line["wrong"] = wrong
    assert cell_text(row_of(RunRecord(record.header, record.batches, _closed(record))), "recovery") == "≥ 0.5"


def _closed(record):
    return record.closing | {"mean_error": record.mean_error, "error_by_domain": record.error_by_domain}


def test_a_network_gone_to_pieces_is_told_and_is_no_number_in_json():
    record = measured(drift=(None, None))
    assert cell_text(row_of(record), "drift") == "∞"
    assert json.loads(build_report([record], "json", columns=("drift",)))["tables"][0]["rows"][0]["measures"] == {
        "drift": {"mean": None, "std": None}
    }


def test_markdown_shows_the_columns_asked_for_in_their_order():
    text = build_report([measured()], "md", columns=("ece", "error"))
    assert "| method | ECE, % | error, % |" in text
    assert "| LAW | 15.0 | 20.0 |" in text
    assert "expected calibration error over the stream" in text


def test_the_line_under_the_columns_names_what_went_farthest_and_what_is_missing():
    text = build_report([measured(), make_record("tent", batches_a_domain=8)], "md", columns=("drift",))
    assert r"Farthest from the source, LAW: b\|c 30.0 %, a 10.0 %." in text
    assert "1 row was run without --measures drift, and drift is unknown." in text


@pytest.mark.parametrize("format", ["md", "html", "csv", "json", "terminal"])
def test_nothing_is_shown_unless_asked_for(format):
    with_measures, without = build_report([measured()], format), build_report([make_record(batches_a_domain=8)], format)
    assert with_measures == without


def test_the_page_has_a_table_of_them():
    text = build_report([measured()], "html", columns=ALL)
    assert "More than error" in text
    assert "<td>15.0 (+5.0)</td>" in text


def test_csv_has_a_field_each():
    heading, line = build_report([measured()], "csv", columns=("ece", "clean")).splitlines()
    fields = dict(zip(heading.split(","), line.split(","), strict=False))
    assert "ece" in fields
    assert ",15.0,15.0," in line


def test_the_terminal_has_a_line_each_and_stays_in_its_window():
    console = Console(width=60, color_system=None)
    with console.capture() as capture:
        console.print(render_terminal([measured(), measured("tent"), measured("source")], ALL))
    lines = capture.get().splitlines()
    assert max(map(len, lines)) <= 60
    assert any(line.split()[:2] == ["ECE,", "%"] for line in lines)
    assert any("FLOPs an image" in line for line in lines)


def test_of_two_runs_that_differ_in_measures_alone_the_fuller_is_shown():
    records = [make_record(batches_a_domain=8), measured()]
    for order in (records, records[::-1]):
        (row,) = make_tables(order)[0].rows
        assert cell_text(row, "ece") == "15.0"


def test_columns_are_parsed_and_wrong_ones_name_their_neighbour():
    assert parse_columns(None) == ()
    assert parse_columns("ece,clean") == ("ece", "clean")
    with pytest.raises(UsageError, match="Did you mean 'ece'"):
        parse_columns("error,ec")
    with pytest.raises(UsageError, match="names none"):
        parse_columns(" ,")


def test_latex_refuses_them():
    with pytest.raises(UsageError, match="--columns"):
        build_report([measured()], "latex", columns=("ece",))


def test_every_measure_has_its_column():
    from driftlaw.evaluation import METRICS

    assert set(FOR_MEASURES) == set(METRICS)
