"""Comparison of logits with label maps: intersection and union against a plain loop and torchmetrics, bad input."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from driftlaw.base import Batch, Domain
from driftlaw.errors import UsageError
from driftlaw.evaluation.metrics import confidence_bins
from driftlaw.evaluation.predictions import check_label_maps, compare, labelled_pixels
from driftlaw.records.run_record import Segment, class_iou

CLASSES = 6


def random_maps(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return logits and label maps, in which class 4 is in neither and class 5 is predicted only."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(4, (3, 7, 9), generator=generator)
    logits = torch.randn(3, CLASSES, 7, 9, generator=generator) + 2 * F.one_hot(labels, CLASSES).movedim(-1, 1)
    logits[:, 4] = -9
    labels[torch.rand(labels.shape, generator=generator) < 0.2] = 255
    labels[:, 0, 0] = -1
    return logits, labels


def mean_iou(*lines: dict) -> float | None:
    return Segment("fog", 5, 0, 0, len(lines), 1, 0, 1, class_iou(lines)).mean_iou


def test_counts_equal_those_of_a_loop_over_pixels():
    logits, labels = random_maps(0)
    result = compare(logits, labels.to(torch.uint8).masked_fill(labels < 0, 255))  # as a dataset returns them
    assert result == compare(logits, labels)
    pairs = list(zip(labels.flatten().tolist(), logits.argmax(1).flatten().tolist(), strict=True))
    counted = [(truth, predicted) for truth, predicted in pairs if truth not in (-1, 255)]
    assert result["pixels"] == len(counted)
    assert result["wrong"] == sum(truth != predicted for truth, predicted in counted)
    for label in range(CLASSES):
        both = sum(pair == (label, label) for pair in counted)
        assert result["iou"]["intersection"][label] == both
        assert result["iou"]["union"][label] == sum(label in pair for pair in counted)
    assert result["iou"]["union"][4] == 0
    assert result["iou"]["intersection"][5] == 0 < result["iou"]["union"][5]
    ious = [100 * a / b for a, b in zip(*result["iou"].values(), strict=True) if b]
    assert mean_iou(result) == pytest.approx(sum(ious) / 5)  # without the absent class, with the one that is predicted


def test_mean_iou_of_several_batches_equals_torchmetrics():
    from torchmetrics.functional.classification import multiclass_jaccard_index  # takes a second to import

    maps = [random_maps(seed) for seed in range(4)]
    found = mean_iou(*(compare(logits, labels) for logits, labels in maps))
    predicted, labels = (torch.cat(parts) for parts in zip(*((a.argmax(1), b) for a, b in maps), strict=True))
    options = {"num_classes": CLASSES, "average": "macro", "ignore_index": 255}
    expected = multiclass_jaccard_index(predicted, labels.masked_fill(labels < 0, 255), **options)
    assert found == pytest.approx(100 * float(expected), rel=1e-6)


def test_logits_of_a_lower_resolution_are_enlarged_before_the_arg_max():
    logits, labels = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(1)), torch.zeros(2, 12, 20).long()
    enlarged = F.interpolate(logits, (12, 20), mode="bilinear", align_corners=False)
    assert compare(logits, labels)["wrong"] == int((enlarged.argmax(1) != 0).sum())


def test_logits_that_are_not_finite_are_wrong_and_predict_no_class():
    logits, labels = torch.zeros(1, 2, 1, 3), torch.tensor([[[0, 0, 255]]])
    logits[..., 1:] = torch.nan
    expected = {"wrong": 1, "not_finite": 1, "pixels": 2, "iou": {"intersection": [1, 0], "union": [2, 0]}}
    assert compare(logits, labels) == expected
    assert compare(logits, None) == {"wrong": None, "not_finite": 1}  # one image


def test_labelled_pixels_have_the_calibration_of_a_list_of_predictions():
    logits, labels = random_maps(2)
    counted = (labels >= 0) & (labels != 255)
    expected = confidence_bins(logits.permute(0, 2, 3, 1)[counted], labels[counted])
    assert confidence_bins(*labelled_pixels(logits, labels)) == expected


def test_a_batch_without_labelled_pixels_counts_nothing():
    result = compare(torch.zeros(1, 2, 2, 2), torch.full((1, 2, 2), 255))
    assert (result["pixels"], result["wrong"], mean_iou(result)) == (0, 0, None)


@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        ((1, 3, 4, 4), torch.full((1, 4, 4), 7), "3 output classes, but the stream contains label 7.*ignore_index=7"),
        ((1, 3, 8, 8), torch.zeros(1, 4, 4), "logits of 8×8 pixels for label maps of 4×4"),
        ((1, 1, 4, 4), torch.zeros(1, 4, 4), r"\(1, 1, 4, 4\).*at least two classes"),
        ((1, 3), torch.zeros(1, 4, 4), "the stream has label maps, but the model returns logits of shape"),
        ((1, 3, 4, 4), torch.zeros(1), "a class per pixel, but the stream has one label per image"),
    ],
)
def test_logits_and_labels_that_do_not_fit_are_refused(logits, labels, message):
    with pytest.raises(UsageError, match=f"(?i){message}"):
        compare(torch.zeros(logits), labels.long())


def test_label_maps_of_another_size_than_the_images_are_refused():
    batch = Batch(torch.zeros(2, 3, 6, 8), torch.zeros(2, 3, 4), Domain("fog"), 5, starts_domain=False)
    with pytest.raises(UsageError, match="batch 5 have 3×4 pixels, but its images have 6×8"):
        check_label_maps(batch)
