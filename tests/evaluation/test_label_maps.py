"""run() with label maps of a loader: metrics, ignored pixels, resuming, bad input."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import driftlaw
from driftlaw.errors import UsageError
from driftlaw.evaluation import run
from driftlaw.evaluation.predictions import compare
from driftlaw.models import build_model
from driftlaw.records import read_record, validate_record
from driftlaw.testing.snapshots import differences, state_of

IMAGES = torch.rand(8, 3, 12, 16, generator=torch.Generator().manual_seed(0))
MAPS = torch.randint(4, (8, 12, 16), generator=torch.Generator().manual_seed(1))
MAPS[:, :3] = 9  # without a class


@pytest.fixture(scope="module")
def network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return build_model("fpn_wrn_10_1", num_classes=4)


def loader(maps: torch.Tensor = MAPS) -> DataLoader:
    return DataLoader(TensorDataset(IMAGES, maps), batch_size=4)


def test_record_has_the_metrics_of_a_plain_loop(network, tmp_path):
    path, metrics = tmp_path / "run.jsonl", ["calibration"]
    options = {"ignore_index": 9, "metrics": metrics}
    record = run(loader(), driftlaw.adapt(network, "tent", statistics="batch"), record=path, **options)
    adapter = driftlaw.adapt(network, "tent", statistics="batch")
    for line, images, maps in zip(record.batches, IMAGES.split(4), MAPS.split(4), strict=True):
        logits = adapter(images.contiguous(memory_format=torch.channels_last))
        expected = compare(logits, maps, 9)
        assert {key: line[key] for key in expected} == expected
        assert line["pixels"] == 4 * 9 * 16
        assert sum(line["calibration"]["count"]) == line["pixels"]
    assert record.header["ignore_index"] == 9
    assert record.closing["mean_iou"] == pytest.approx(record.mean_iou, abs=1e-5)
    again = run(loader(), driftlaw.adapt(network, "tent", statistics="batch"), record=path, **options)
    assert validate_record(read_record(path)).mean_iou == again.mean_iou


def test_labels_do_not_change_predictions(network):
    facts = []
    for maps in (MAPS, MAPS.flip(0)):
        record = run(loader(maps), driftlaw.adapt(network, "law", statistics="batch"), ignore_index=9)
        facts.append([line["facts"] for line in record.batches])
    assert facts[0] == facts[1]


METHODS = ("source", "norm", "tent", "law", "law_plus")


def assert_refused(network: nn.Module, method: str, data: DataLoader, message: str) -> None:
    """Check that a run raises an error and leaves the adapter as it was."""
    statistics = {} if method == "source" else {"statistics": "batch"}
    adapter = driftlaw.adapt(network, method, **statistics)
    before = state_of(adapter)
    with pytest.raises(UsageError, match=message):
        run(data, adapter)
    assert differences(before, state_of(adapter)) == []


@pytest.mark.parametrize(
    ("maps", "message"),
    [
        (MAPS, "4 output classes, but the stream contains label 9.*ignore_index=9"),
        (MAPS[:, ::2, ::2], "label maps of batch 0 have 6×8 pixels, but its images have 12×16"),
        (torch.zeros(8, dtype=torch.int64), "a class per pixel, but the stream has one label per image"),
        (MAPS[:, None], r"have shape \(4, 1, 12, 16\); .*Use labels\.squeeze\(1\)"),
        (MAPS.float(), r"dtype torch\.float32.*Use labels\.long\(\)"),
    ],
)
def test_labels_that_do_not_fit_are_refused_and_nothing_changes(network, tmp_path, maps, message):
    for method in METHODS:
        assert_refused(network, method, loader(maps), message)
    path = tmp_path / "run.jsonl"
    with pytest.raises(UsageError, match=message):
        run(loader(maps), driftlaw.adapt(network, "source"), record=path)
    assert not path.exists() or not read_record(path).batches


class Changing(nn.Module):
    """Changes the logits of a network from the n-th call on."""

    def __init__(self, network: nn.Module, change: Callable[[torch.Tensor], torch.Tensor], first: int = 1):
        super().__init__()
        self.network, self.change, self.first, self.calls = network, change, first, 0

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.change(self.network(images)) if self.calls >= self.first else self.network(images)


@pytest.mark.parametrize("method", METHODS)
def test_networks_that_do_not_fit_are_refused_and_nothing_changes(network, method):
    maps = MAPS.clamp(max=3)
    one = Changing(network, lambda logits: logits[:, :1])
    assert_refused(one, method, loader(maps), "one output per image or pixel")
    larger = Changing(network, lambda logits: logits.repeat_interleave(2, dim=2))
    assert_refused(larger, method, loader(maps), "logits of 24×16 pixels for label maps of 12×16")
    # From the fourth call on: law has made one step by then, while its cost is counted.
    unsteady = Changing(network, lambda logits: logits[..., ::2, ::2], first=4)
    assert_refused(unsteady, method, loader(maps), r"logits of \(6, 8\) pixels for images of \(12, 16\), and earlier")


def test_an_unknown_label_in_a_later_batch_leaves_the_state_of_the_batches_before(network):
    maps = MAPS.clamp(max=3)
    maps[6, 0, 0] = 4
    adapter, other = (driftlaw.adapt(network, "law", statistics="batch") for _ in range(2))
    with pytest.raises(UsageError, match="4 output classes, but the stream contains label 4"):
        run(loader(maps), adapter)
    run(DataLoader(TensorDataset(IMAGES[:4], maps[:4]), batch_size=4), other)
    assert adapter.steps == 1
    assert differences(state_of(adapter), state_of(other)) == []
