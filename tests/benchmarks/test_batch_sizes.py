"""Tests of the benchmark ``batch-sizes``."""

import json

import pytest
import torch

from benchmarks.batch_sizes import measure_batch_sizes
from benchmarks.report_tables import make_bench_tables
from driftlaw.errors import UsageError
from tests.benchmarks.test_main import call


@pytest.mark.small_batches
def test_errors_are_averaged_over_domains_and_updates_are_counted():
    record = measure_batch_sizes(
        [16, 40], ["source", "norm"], corruptions="held_out", limit=40, device=torch.device("cpu")
    )
    rows = {(row["method"], row["batch_size"]): row for row in record["rows"]}
    assert rows["source", 16]["error_by_domain"] == rows["source", 40]["error_by_domain"]
    for row in rows.values():
        assert len(row["error_by_domain"]) == 4
        assert row["error"] == pytest.approx(sum(row["error_by_domain"].values()) / 4)
        assert row["images"] == 160
    assert rows["norm", 40]["updates"] == 4
    assert rows["norm", 16]["updates"] == 2  # of 16 + 16 + 8 images per domain, after every 64 or more
    assert [table.lines[1][0] for table in make_bench_tables(record)] == ["norm", "norm"]


def test_the_command_writes_a_record(tmp_path):
    path = tmp_path / "record.json"
    options = ["--sizes", "4", "--methods", "source", "--corruptions", "spatter", "--limit", "4", "--device", "cpu"]
    assert "batch of 4" in call("batch-sizes", *options, "--out", str(path))
    record = json.loads(path.read_text(encoding="utf-8"))
    assert (record["corruptions"], record["limit"], record["seed"]) == ("spatter", 4, 1)
    with pytest.raises(UsageError, match="law"):
        call("batch-sizes", "--methods", "lew")
