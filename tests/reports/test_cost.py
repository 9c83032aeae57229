import pytest

from driftlaw.reports.tables import make_tables
from tests.reports.example_records import make_record


def cost(*records):
    return make_tables(records)[0].rows[0].cost


def test_cost_in_forward_passes():
    assert cost(make_record("law")).forward_passes == pytest.approx(8.0)
    assert cost(make_record("source")).forward_passes == pytest.approx(1.0)


def test_seconds_are_the_median_over_steps():
    record = make_record("law")
    record.batches[0]["timing"]["seconds"] = 99.0
    assert cost(record).seconds == pytest.approx(0.4)


def test_runs_on_a_shared_gpu_are_ignored_for_time():
    records = [make_record("law", seed=seed) for seed in (1, 2)]
    records[0].closing["timing"]["shared_gpu"] = True
    records[0].batches[0]["timing"]["seconds"] = records[0].batches[1]["timing"]["seconds"] = 99.0
    assert cost(*records).seconds == pytest.approx(0.4)
    records[1].closing["timing"]["shared_gpu"] = True
    assert cost(*records).seconds is None


def test_memory_is_the_largest_peak_over_seeds():
    records = [make_record(seed=seed) for seed in (1, 2)]
    records[1].closing["timing"]["peak_bytes"] = 200_000_000
    assert cost(*records).peak_bytes == 200_000_000


def test_unfinished_run_has_the_flops_of_its_first_batch():
    assert cost(make_record("tent", finished=False, batches_done=3)).forward_passes == pytest.approx(2.0)


def test_unrecorded_costs_are_none():
    record = make_record()
    del record.batches[0]["cost"], record.closing["cost"], record.closing["timing"]["peak_bytes"]
    result = cost(record)
    assert (result.forward_passes, result.step_flops, result.peak_bytes) == (None, None, None)
