"""run() with label maps of a loader: metrics, ignored pixels, resuming, bad input."""

from __future__ import annotations

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
def test_labels_that_do_not_fit_are_refused_and_leave_no_line(network, tmp_path, maps, message):
    path = tmp_path / "run.jsonl"
    with pytest.raises(UsageError, match=message):
        run(loader(maps), driftlaw.adapt(network, "source"), record=path)
    assert not path.exists() or not read_record(path).batches
