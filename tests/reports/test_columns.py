import json

import pytest
from rich.console import Console

from driftlaw.errors import UsageError
from driftlaw.records import RunRecord
from driftlaw.reports import build_report, make_tables, render_terminal
from driftlaw.reports.columns import COLUMN_FOR_METRIC, COLUMNS, column_data, column_text, parse_columns
from tests.reports.example_records import add_diagnostics, in_rounds, make_record

ALL = tuple(COLUMNS)


def measured(method="law", *, seed=1, wrong_after=30, drift=(0.1, 0.3), **options):
    """Return a run of 15 domains of 8 batches with all metrics."""
    record = make_record(method, seed=seed, batches_per_domain=8, **options)
    for line in record.batches:
        line["calibration"] = {"count": [50, 50], "confidence": [20.0, 45.0], "correct": [10, 40]}
    record.batches[-1]["drift"] = list(drift)
    clean = {"images": 200, "wrong_before": 20, "wrong_after": wrong_after}
    header = record.header | {"measures": {"calibration": {}, "forgetting": {}, "drift": {"tensors": ["a", "b|c"]}}}
    return RunRecord(header, record.batches, record.closing | {"clean": clean}, record.path)


def row_of(*records):
    return make_tables(records)[0].rows[0]


def test_value_of_every_column():
    row = row_of(measured())
    assert {name: column_text(row, name) for name in ALL} == {
        "error": "20.0",
        "miou": "–",
        "ece": "15.0",
        "clean": "15.0 (+5.0)",
        "first_round": "–",
        "last_round": "–",
        "worst": "20.0",
        "recovery": "0.0",
        "drift": "20.0",
        "agreement": "–",
        "ms": "400",
        "flops": "432.0 M",
    }


def test_repeating_stream_has_errors_of_first_and_last_round():
    runs = [in_rounds(make_record(errors=[20, 30, 40], seed=seed), [0, 1, 1]) for seed in (1, 2)]
    assert [column_text(row_of(*runs), name) for name in ("first_round", "last_round")] == [
        "20.0 ± 0.00",
        "35.0 ± 0.00",
    ]


def test_several_seeds_give_mean_and_standard_deviation():
    row = row_of(measured(), measured(seed=2, wrong_after=40))
    assert column_text(row, "clean") == "17.5 ± 3.54 (+7.5)"
    assert column_data(row, "clean") == {"mean": 17.5, "std": 3.5355}


def test_unrecorded_metric_is_a_dash():
    row = row_of(make_record())
    assert [column_text(row, name) for name in ("ece", "clean", "recovery", "drift")] == ["–"] * 4
    assert column_data(row, "ece") == {"mean": None, "std": None}


def test_unfinished_run_has_only_costs():
    row = row_of(make_record(finished=False, batches_done=20))
    assert [name for name in ALL if column_text(row, name) != "–"] == ["ms", "flops"]


def test_recovery_is_a_lower_bound_if_a_domain_does_not_recover():
    record = measured()
    for line, wrong in zip(record.batches, [90] * 4 + [0, 90, 90, 0], strict=False):
        line["wrong"] = wrong
    assert column_text(row_of(RunRecord(record.header, record.batches, _closed(record))), "recovery") == "≥ 0.5"


def _closed(record):
    return record.closing | {"mean_error": record.mean_error, "error_by_domain": record.error_by_domain}


def test_agreement_is_the_mean_over_measured_steps():
    record = add_diagnostics(make_record("norm", {"fog": 10.0}, batches_per_domain=8), every=4)
    assert column_text(row_of(record), "agreement") == "70.0"
    assert column_text(row_of(make_record("norm")), "agreement") == "–"


def test_infinite_drift_is_a_symbol_in_text_and_null_in_json():
    record = measured(drift=(None, None))
    assert column_text(row_of(record), "drift") == "∞"
    assert json.loads(build_report([record], "json", columns=("drift",)))["tables"][0]["rows"][0]["measures"] == {
        "drift": {"mean": None, "std": None}
    }


def test_markdown_keeps_the_requested_order():
    text = build_report([measured()], "md", columns=("ece", "error"))
    assert "| method | ECE, % | error, % |" in text
    assert "| LAW | 15.0 | 20.0 |" in text
    assert "expected calibration error over the stream" in text


def test_caption_names_largest_drift_and_missing_metrics():
    text = build_report([measured(), make_record("tent", batches_per_domain=8)], "md", columns=("drift",))
    assert r"Largest drift, LAW: b\|c 30.0 %, a 10.0 %." in text
    assert "1 row without drift: run with --metrics drift." in text


@pytest.mark.parametrize("format", ["md", "html"])
def test_pages_show_the_metrics_that_were_measured(format):
    record = measured()
    measured_columns = tuple(COLUMN_FOR_METRIC[name] for name in COLUMN_FOR_METRIC if name in record.metrics)
    assert measured_columns == ("ece", "clean", "drift")
    assert build_report([record], format) == build_report([record], format, columns=measured_columns)
    assert "Additional metrics" not in build_report([make_record(batches_per_domain=8)], format)


@pytest.mark.parametrize("format", ["csv", "json", "terminal", "brief", "latex"])
def test_other_formats_show_only_the_metrics_that_were_asked_for(format):
    plain = make_record(batches_per_domain=8)
    assert build_report([measured()], format) == build_report([plain], format)


def test_html_has_a_table_of_metrics():
    text = build_report([measured()], "html", columns=ALL)
    assert "Additional metrics" in text
    assert "<td>15.0 (+5.0)</td>" in text


def test_csv_has_one_field_per_column():
    heading, line = build_report([measured()], "csv", columns=("ece", "clean")).splitlines()
    fields = dict(zip(heading.split(","), line.split(","), strict=False))
    assert "ece" in fields
    assert ",15.0,15.0," in line


def test_terminal_has_one_line_per_column_and_fits_the_width():
    console = Console(width=60, color_system=None)
    with console.capture() as capture:
        console.print(render_terminal([measured(), measured("tent"), measured("source")], ALL))
    lines = capture.get().splitlines()
    assert max(map(len, lines)) <= 60
    assert any(line.split()[:2] == ["ECE,", "%"] for line in lines)
    assert any("FLOPs/image" in line for line in lines)


def test_of_two_equal_runs_the_one_with_more_metrics_is_used():
    records = [make_record(batches_per_domain=8), measured()]
    for order in (records, records[::-1]):
        (row,) = make_tables(order)[0].rows
        assert column_text(row, "ece") == "15.0"


def test_parse_columns_rejects_unknown_and_empty_lists():
    assert parse_columns(None) == ()
    assert parse_columns("ece,clean") == ("ece", "clean")
    with pytest.raises(UsageError, match="Did you mean 'ece'"):
        parse_columns("error,ec")
    with pytest.raises(UsageError, match="contains no name"):
        parse_columns(" ,")


def test_latex_rejects_columns():
    with pytest.raises(UsageError, match="--columns"):
        build_report([measured()], "latex", columns=("ece",))


def test_every_metric_that_is_a_number_has_a_column():
    from driftlaw.evaluation import METRICS

    assert set(COLUMN_FOR_METRIC) == set(METRICS) - {"frames"}
