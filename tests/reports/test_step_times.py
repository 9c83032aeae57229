"""Milliseconds of a benchmark beside the errors of runs: whose they are, and where they are shown."""

import json

import pytest

from driftlaw.errors import DataError
from driftlaw.reports import build_report
from driftlaw.reports.cost import cost_of
from driftlaw.reports.step_times import StepTimes, read_step_times, with_step_times
from driftlaw.reports.tables import make_tables
from tests.reports import bench_records
from tests.reports.example_records import make_record, write_record
from tools.results.make import make_results

MODEL = {"name": "wrn_10_1", "weights": None, "sha256": "a" * 64}
SETTINGS = {"learning_rate": 1e-3, "grouping": "tensor", "window": None}


def run(settings=SETTINGS, batch_size=8, **options):
    header = {"model": MODEL, "device": bench_records.WHERE["device"]}
    return make_record(settings=settings, batch_size=batch_size, header=header, **options)


def bench(**settings):
    record = bench_records.step()
    for row in record["rows"]:
        if row["method"] == "law":
            row["settings_in_full"] = {**SETTINGS, "learning_rate": 1e-6, **settings}
    return record


@pytest.fixture
def times():
    return StepTimes(bench(), "step.json")


def test_a_run_has_the_time_of_its_method_network_batch_size_and_settings(times):
    assert times.seconds_of(run()) == 0.005
    assert times.seconds_of(run(method="tent")) is None
    assert times.seconds_of(run(batch_size=100)) is None
    elsewhere = run()
    elsewhere.header["model"] = {"name": "wrn_28_10"}
    assert times.seconds_of(elsewhere) is None
    elsewhere = run()
    elsewhere.header["device"] = {"type": "cuda", "name": "a GPU"}
    assert times.seconds_of(elsewhere) is None


@pytest.mark.parametrize("more", [{"grouping": "block"}, {"window": 64}, {"skip_share": 0.9}, {"compiled": True}])
def test_settings_that_change_the_work_must_agree_on_either_side(times, more):
    assert times.seconds_of(run({**SETTINGS, **more})) is None
    assert StepTimes(bench(**more), "step.json").seconds_of(run()) is None
    assert StepTimes(bench(**more), "step.json").seconds_of(run({**SETTINGS, **more})) == 0.005


def test_tables_tell_the_benchmarks_milliseconds_and_whose_they_are(times):
    (table,) = with_step_times(make_tables([run(), run(method="source", settings={})]), times)
    seconds = {row.method: cost_of(row).seconds for row in table.rows}
    assert seconds == {"law": 0.005, "source": None}
    assert any(
        "bench step (a <fast> machine, commit abc1234; step.json holds its command)" in note for note in table.notes
    )


def test_without_a_benchmark_the_milliseconds_are_the_records_own():
    (table,) = with_step_times(make_tables([run()]), None)
    assert cost_of(table.rows[0]).seconds == pytest.approx(0.4)
    assert not table.timing


def test_a_table_of_which_nothing_was_measured_keeps_its_own_milliseconds(times):
    (table,) = with_step_times(make_tables([run(batch_size=100)]), times)
    assert cost_of(table.rows[0]).seconds == pytest.approx(0.4)
    assert not table.timing


def test_a_brief_table_says_where_its_milliseconds_come_from(times):
    text = build_report([run()], "brief", times=times)
    assert "| 5.00 |" in text
    assert "Milliseconds a step: measured in one run of driftlaw bench step" in text


def test_a_csv_tells_the_benchmarks_time_too(times):
    text = build_report([run()], "csv", times=times)
    assert ",0.005," in text


def test_of_a_gpu_it_is_said_whose_kernels_were_measured(times):
    assert "kernels" not in times.origin
    on_gpu = {**times.record, "device": {"type": "cuda", "name": "a GPU"}, "deterministic": False}
    assert "cuDNN took its fastest kernels" in StepTimes(on_gpu, "step.json").origin


def test_a_record_that_does_not_tell_its_settings_is_refused(tmp_path):
    record = bench_records.step()
    for row in record["rows"]:
        row.pop("settings_in_full", None)
    path = tmp_path / "step.json"
    path.write_text(json.dumps(record), encoding="utf-8")
    with pytest.raises(DataError, match="run driftlaw bench again"):
        read_step_times(path)


def test_a_record_of_another_benchmark_is_refused(tmp_path):
    path = tmp_path / "memory.json"
    path.write_text(json.dumps(bench_records.memory()), encoding="utf-8")
    with pytest.raises(DataError, match="a record of bench memory"):
        read_step_times(path)


def test_a_folder_of_results_may_hold_the_benchmark_of_its_tables(tmp_path):
    write_record(run(), tmp_path / "results" / "table1" / "cifar10-c" / "law.jsonl")
    before = make_results(tmp_path).text
    (tmp_path / "results" / "table1" / "step-times.json").write_text(json.dumps(bench()), encoding="utf-8")
    after = make_results(tmp_path).text
    assert "| 400 |" in before
    assert "| 400 |" not in after
    assert "| 5.00 |" in after
    assert "measured in one run" in after
