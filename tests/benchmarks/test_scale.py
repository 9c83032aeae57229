import pytest
import torch

from benchmarks.reliability.data import NETWORK
from benchmarks.scale import shards
from benchmarks.scale.pool import measure_variant, summarize
from benchmarks.scale.ranks import compare, run_cases


def test_streams_of_a_pool_predict_as_separate_adapters_within_the_budget():
    generator = torch.Generator().manual_seed(0)
    calls = [(name, torch.rand(4, 3, 32, 32, generator=generator)) for name in "abcdabdc"]
    row = measure_variant("tent statistics=batch", NETWORK, calls, 1, 1, torch.device("cpu"))
    assert row["equal_calls"] == row["calls"] == 8
    assert all(row["peak_bytes"][place] <= row["budget_bytes"][place] for place in ("device", "host"))
    assert row["bytes_per_stream"]["host"] < row["bytes_per_stream"]["device"] < row["adapter_bytes"]
    assert sum(times["count"] for times in row["switch"].values()) == 8
    assert row["switch"]["new"]["count"] == 4
    assert row["switch"]["disk"]["count"] > 0


def test_times_are_summarized_in_milliseconds():
    assert summarize([0.003, 0.001, 0.002]) == pytest.approx({"count": 3, "median_ms": 2, "p99_ms": 3})


def test_streams_from_shards_and_folders_are_measured_with_and_without_workers(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "FOLDER_SIDE", 32)
    monkeypatch.setattr(shards, "IMAGES_PER_SHARD", 50)
    pattern = shards.write_shards(tmp_path / "shards", 80)
    rows = [shards.stream_images(pattern, workers, str(tmp_path)) for workers in (0, 1)]
    assert [row["batches"] for row in rows] == [2, 2]
    assert rows[0]["checksum"] == rows[1]["checksum"] > 0
    assert rows[0]["workers_mib"]["50%"] == 0 < rows[1]["workers_mib"]["50%"]
    folder = shards.stream_images(shards.write_folder(tmp_path / "folder", 20), 0, str(tmp_path))
    assert list(folder["memory_mib"]) == ["100%"]


def test_ranks_are_compared_with_one_process(tmp_path, monkeypatch):
    monkeypatch.setenv("DRIFTLAW_DATA", str(tmp_path))  # run_cases changes it
    cases = [("tent", {"statistics": "batch"})]
    run_cases(cases, 2, tmp_path / "alone.pt", None)
    ((logits, state, changed, steps),) = torch.load(tmp_path / "alone.pt", weights_only=False)
    assert changed > 1e-4
    for rank in range(2):
        parts = [one.tensor_split(2)[rank] + rank for one in logits]
        other = {name: value + 0.5 * rank for name, value in state.items()}
        torch.save([(parts, other, changed, steps)], tmp_path / f"2-{rank}.pt")
    (row,) = compare(cases, [2], tmp_path)
    assert (row["logits_2"], row["state_2"], row["same_state"]) == (pytest.approx(1), 0, False)
    assert row["updates"] == 2
