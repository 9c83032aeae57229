"""Step times from a benchmark: which runs they apply to, and how reports show them."""

import json

import pytest

from driftlaw.errors import DataError
from driftlaw.reports import build_report, make_tables
from tests.benchmarks import bench_records
from tests.reports.example_records import make_record, write_record
from tools.results.document import make_results
from tools.results.step_times import read_step_times, step_times, with_step_times

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


def seconds(record, run):
    return step_times(record, "step.json").seconds(run)


@pytest.fixture
def times():
    return step_times(bench(), "step.json")


def test_time_applies_to_the_same_method_model_batch_size_and_device(times):
    assert times.seconds(run()) == 0.005
    assert times.seconds(run(method="tent")) is None
    assert times.seconds(run(batch_size=100)) is None
    other = run()
    other.header["model"] = {"name": "wrn_28_10"}
    assert times.seconds(other) is None
    other = run()
    other.header["device"] = {"type": "cuda", "name": "a GPU"}
    assert times.seconds(other) is None


@pytest.mark.parametrize("more", [{"grouping": "block"}, {"window": 64}, {"skip_share": 0.9}, {"compiled": True}])
def test_settings_that_change_the_work_must_agree(times, more):
    assert times.seconds(run({**SETTINGS, **more})) is None
    assert seconds(bench(**more), run()) is None
    assert seconds(bench(**more), run({**SETTINGS, **more})) == 0.005


def test_tables_contain_the_times_and_their_origin(times):
    (table,) = with_step_times(make_tables([run(), run(method="source", settings={})]), times)
    assert {row.method: row.cost.seconds for row in table.rows} == {"law": 0.005, "source": None}
    origin = "step benchmark (a <fast> machine, commit abc1234; command in step.json)"
    assert any(origin in note for note in table.notes)


def test_without_benchmark_the_times_are_from_the_records():
    (table,) = with_step_times(make_tables([run()]), None)
    assert table.rows[0].cost.seconds == pytest.approx(0.4)
    assert not table.notes


def test_table_without_measured_rows_keeps_its_times(times):
    (table,) = with_step_times(make_tables([run(batch_size=100)]), times)
    assert table.rows[0].cost.seconds == pytest.approx(0.4)
    assert not table.notes


def test_reports_contain_the_times(times):
    tables = with_step_times(make_tables([run()]), times)
    assert "| 5.00 |" in build_report(tables, "brief")
    assert "Milliseconds per step: measured in one run of the step benchmark" in build_report(tables, "md")


def test_origin_names_nondeterministic_kernels(times):
    assert "kernels" not in times.origin
    on_gpu = {**bench(), "device": {"type": "cuda", "name": "a GPU"}, "deterministic": False}
    assert "cuDNN used its fastest kernels" in step_times(on_gpu, "step.json").origin


def test_record_without_settings_is_an_error(tmp_path):
    record = bench_records.step()
    for row in record["rows"]:
        row.pop("settings_in_full", None)
    path = tmp_path / "step.json"
    path.write_text(json.dumps(record), encoding="utf-8")
    with pytest.raises(DataError, match="Run python -m benchmarks step again"):
        read_step_times(path)


def test_record_of_another_benchmark_is_an_error(tmp_path):
    path = tmp_path / "memory.json"
    path.write_text(json.dumps(bench_records.memory()), encoding="utf-8")
    with pytest.raises(DataError, match="a record of the benchmark 'memory'"):
        read_step_times(path)


def test_results_folder_may_contain_the_benchmark_of_its_tables(tmp_path):
    write_record(run(), tmp_path / "results" / "table1" / "cifar10-c" / "law.jsonl")
    before = make_results(tmp_path).text
    (tmp_path / "results" / "table1" / "step-times.json").write_text(json.dumps(bench()), encoding="utf-8")
    after = make_results(tmp_path).text
    assert "| 400 |" in before
    assert "| 400 |" not in after
    assert "| 5.00 |" in after
    assert "measured in one run" in after
