"""The benchmark of the corruptions, on a handful of images."""

import json

import pytest
import torch

from benchmarks import corruptions as bench
from driftlaw.corruptions import list_corruptions
from driftlaw.errors import UsageError

IMAGES = torch.randint(0, 256, (3, 3, 12, 12), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def _one_pass(monkeypatch):
    def once(work, count, device, at_least=0.0):
        work()
        return 1000.0 * count

    monkeypatch.setattr(bench, "_per_second", once)


def test_ours_and_the_plain_version_are_timed_for_all_fifteen():
    told = []
    record = bench.compare(IMAGES, severity=2, device=torch.device("cpu"), plain_images=1, told=told.append)
    assert [speed["name"] for speed in record["speeds"]] == told == list_corruptions("benchmark")
    assert record["ratio"] == pytest.approx(3)
    assert record["plain_images"] == 1
    json.dumps(record)


def test_a_whole_archive_is_fifteen_times_five_times_the_images():
    record = bench.make_all(IMAGES, device=torch.device("cpu"))
    assert record["images"] == 15 * 5 * 3
    assert record["seconds"] == pytest.approx(sum(record["seconds_by_corruption"].values()))
    assert record["versions"]["torch"] == str(torch.__version__)


def test_without_a_checkout_the_plain_version_is_asked_for(monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "REFERENCE", tmp_path / "corruptions.py")
    with pytest.raises(UsageError, match="clone of the repository"):
        bench.load_reference()
