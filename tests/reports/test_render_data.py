import csv
import io
import json

import pytest

from driftlaw.reports import build_report
from tests.reports.example_records import make_record, with_label_maps


def lines(records):
    return list(csv.DictReader(io.StringIO(build_report(records, "csv"))))


def test_csv_has_one_line_per_method_and_seed():
    records = [make_record(name, [seed] * 15, seed=seed) for name in ("source", "law") for seed in (1, 2)]
    values = [(line["method"], line["seed"], line["mean"], line["error:fog"]) for line in lines(records)]
    assert values == [
        ("source", "1", "1.0", "1.0"),
        ("source", "2", "2.0", "2.0"),
        ("law", "1", "1.0", "1.0"),
        ("law", "2", "2.0", "2.0"),
    ]


def test_csv_is_empty_where_a_run_did_not_get_to():
    records = [make_record("law", {"fog": 10}), make_record("law", {"snow": 10}, finished=False, batches_done=1)]
    fog, snow = sorted(lines(records), key=lambda line: line["finished"], reverse=True)
    assert (fog["error:fog"], fog["error:snow"], fog["finished"]) == ("10.0", "", "True")
    assert (snow["error:snow"], snow["mean"], snow["finished"]) == ("", "", "False")


def test_csv_distinguishes_protocols():
    records = [make_record("law"), make_record("law", stream={"schedule": "mixed"})]
    assert len({line["protocol"] for line in lines(records)}) == 2


def test_json_contains_the_whole_report():
    records = [
        make_record(name, [error] * 15, seed=seed) for name, error in [("source", 45), ("law", 20)] for seed in (1, 2)
    ]
    document = json.loads(build_report(records, "json", command="driftlaw report runs"))
    (table,) = document["tables"]
    source, law = table["rows"]
    assert document["format"] == "driftlaw-report-1"
    assert document["command"] == "driftlaw report runs"
    assert "seed" not in table["protocol"]["stream"]
    assert law["mean"] == {"mean": 20.0, "std": 0.0, "mark": "best"}
    assert law["errors"]["fog"]["mean"] == 20.0
    assert law["difference_to_source"] == -25.0
    assert law["cost"]["forward_units"] == pytest.approx(8.0)
    assert [run["seed"] for run in source["runs"]] == [1, 2]


def test_json_marks_unfinished_runs():
    (table,) = json.loads(build_report([make_record(finished=False, batches_done=3)], "json"))["tables"]
    assert table["rows"][0]["finished"] is False
    assert table["rows"][0]["mean"]["mean"] is None
    assert "unfinished" in table["notes"][0]


def test_reports_of_label_maps_have_mean_iou_by_domain_and_iou_by_class():
    records = [
        with_label_maps(make_record(name, {"fog": 20, "snow": 40}), shift=shift)
        for name, shift in (("source", 100), ("law", 0))
    ]
    fog, snow = 100 * (400 / 600 + 400 / 500) / 2, 100 * (300 / 700 + 300 / 500) / 2
    law = json.loads(build_report(records, "json"))["tables"][0]["rows"][1]
    assert law["mean_iou_by_domain"] == {"fog": pytest.approx(fog, abs=1e-4), "snow": pytest.approx(snow, abs=1e-4)}
    assert law["mean_iou"]["mean"] == pytest.approx((fog + snow) / 2, abs=1e-4)
    assert law["iou_by_class"] == {"road": pytest.approx(54.7619, abs=1e-4), "sky": pytest.approx(70.0)}
    assert law["errors"]["fog"]["mean"] == 20.0  # of pixels
    line = lines(records)[1]
    assert (float(line["iou:fog"]), float(line["mean_iou"])) == pytest.approx((fog, (fog + snow) / 2), abs=1e-4)
    for format in ("md", "html", "terminal"):
        text = build_report(records, format)
        assert all(part in text for part in ("Mean IoU by domain", "road", "73.3")), format
    assert "IoU" not in build_report([make_record("law")], "html")
