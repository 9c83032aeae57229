"""Tests of benchmarks.corruptions on a few images. Timing is replaced by a constant."""

import json

import pytest
import torch

from benchmarks import corruptions
from driftlaw.corruptions import list_corruptions

IMAGES = torch.randint(0, 256, (3, 3, 12, 12), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def _constant_time(monkeypatch):
    def run_once(work, count, device, at_least=0.0):
        work()
        return 1000.0 * count

    monkeypatch.setattr(corruptions, "_per_second", run_once)


def test_all_fifteen_corruptions_are_compared_with_the_reference():
    names = []
    record = corruptions.compare_corruptions(
        IMAGES, severity=2, device=torch.device("cpu"), reference_images=1, on_progress=names.append
    )
    assert [speed["name"] for speed in record["speeds"]] == names == list_corruptions("benchmark")
    assert record["ratio"] == pytest.approx(3)
    assert record["plain_images"] == 1
    json.dumps(record)


def test_full_benchmark_has_fifteen_times_five_times_the_images():
    record = corruptions.time_full_benchmark(IMAGES, device=torch.device("cpu"))
    assert record["images"] == 15 * 5 * 3
    assert record["seconds"] == pytest.approx(sum(record["seconds_by_corruption"].values()))
    assert record["versions"]["torch"] == str(torch.__version__)


def test_images_repeat_if_the_dataset_has_fewer():
    from driftlaw.datasets import load_dataset

    size = len(load_dataset("cifar10-embedded"))
    images = corruptions.load_images("cifar10-embedded", size + 1)
    assert images.shape == (size + 1, 3, 32, 32)
    assert torch.equal(images[-1], images[0])
