"""Training of segmentation networks: recipe, random crops of images and label maps, loss and evaluation."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor, nn

from benchmarks.train.recipe import Recipe
from driftlaw.datasets.label_maps import NO_CLASS, select_sequences
from driftlaw.evaluation.predictions import compare
from driftlaw.models import load_model
from driftlaw.models.segmentation import FeaturePyramid
from driftlaw.records import RunRecord

EVALUATION_BATCH = 4


class SegmentationRecipe(Recipe):
    """AdamW, random crops, flips and scales, and a cosine schedule with linear warm-up.

    Settings of other recipes (momentum, crop_padding, augmentation, consistency_weight) have no effect.
    """

    epochs: PositiveInt = 100
    """Passes over the training images."""
    batch_size: PositiveInt = 16
    """Crops per step."""
    learning_rate: PositiveFloat = 1e-3
    """Highest learning rate, reached after the warm-up."""
    encoder_rate: PositiveFloat = 1.0
    """Factor of the learning rate for the encoder; 0.1 for pretrained weights."""
    weight_decay: PositiveFloat = 1e-2
    """Weight decay of all parameters (AdamW)."""
    crop: tuple[PositiveInt, PositiveInt] | None = None
    """Height and width of random crops; by default those of the images."""
    scales: tuple[PositiveFloat, PositiveFloat] = (1.0, 1.0)
    """Smallest and largest factor by which the images of a batch are resized before they are cropped."""
    size: tuple[PositiveInt, PositiveInt] | None = None
    """Height and width to which images and label maps are resized when they are read."""
    sequences: tuple[str, ...] | None = None
    """Sequences of the training split to use; all by default."""
    encoder: str | None = None
    """Weights for the encoder, as for ``load_model``: a name or a file. Its input normalisation is used, too."""


class CroppedBatches:
    """Batches of one epoch in random order: crops of images and label maps, scaled per batch and mirrored per image.

    Args:
        images: uint8 (n, c, h, w), on the generator's device.
        labels: label maps, uint8 (n, h, w), on the same device.
        recipe: batch size, crop, scales and flip.
        generator: source of randomness.
    """

    def __init__(self, images: Tensor, labels: Tensor, recipe: SegmentationRecipe, generator: torch.Generator) -> None:
        self.images, self.labels, self.recipe, self.generator = images, labels, recipe, generator
        self.crop = recipe.crop or (images.shape[-2], images.shape[-1])

    def __len__(self) -> int:
        return math.ceil(len(self.images) / self.recipe.batch_size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.randperm(len(self.images), generator=self.generator, device=self.images.device)
        for indices in torch.split(order, self.recipe.batch_size):
            yield self._cropped(self.images[indices], self.labels[indices])

    def _cropped(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        low, high = self.recipe.scales
        scale = low * (high / low) ** self._draw(1)[0]
        if scale != 1.0:
            size = [max(round(side * scale), 1) for side in images.shape[-2:]]
            images = F.interpolate(images.float(), size, mode="bilinear", antialias=scale < 1).round_().to(torch.uint8)
            labels = F.interpolate(labels[:, None], size, mode="nearest")[:, 0]
        bottom, right = (max(want - have, 0) for want, have in zip(self.crop, images.shape[-2:], strict=True))
        images = F.pad(images, (0, right, 0, bottom))
        labels = F.pad(labels, (0, right, 0, bottom), value=NO_CLASS)
        crops = []
        height, width = self.crop
        for image, label in zip(images, labels, strict=True):
            top, left, mirror = self._draw(3)
            rows = slice(start := int(top * (image.shape[-2] - height + 1)), start + height)
            columns = slice(start := int(left * (image.shape[-1] - width + 1)), start + width)
            pair = image[:, rows, columns], label[rows, columns]
            crops.append([part.flip(-1) for part in pair] if self.recipe.flip and mirror < 0.5 else pair)
        pixels, maps = zip(*crops, strict=True)
        return torch.stack(pixels), torch.stack(maps).long()

    def _draw(self, count: int) -> list[float]:
        numbers: list[float] = torch.rand(count, generator=self.generator, device=self.generator.device).tolist()
        return numbers


def segmentation_loss(model: nn.Module, images: Tensor, labels: Tensor, _: float = 0.0) -> Tensor:
    """Return the cross-entropy of a batch over the pixels that have a class.

    Args:
        model: maps images (n, c, h, w) in [0, 1] to logits (n, classes, h, w).
        images: uint8 (n, c, h, w).
        labels: label maps (n, h, w).
    """
    logits = model(images.to(torch.float32).div(255).contiguous(memory_format=torch.channels_last))
    return F.cross_entropy(logits.float(), labels, ignore_index=NO_CLASS)


def load_encoder(name: str, data_dir: Any = None) -> nn.Module:
    """Return trained weights for an encoder. Named weights are used as they are stored, without rescaling."""
    from driftlaw.models import list_weights

    return load_model(list_weights(data_dir).get(name, name), folder=data_dir)


def copy_encoder(model: nn.Module, source: nn.Module) -> None:
    """Copy the weights of a trained classifier into the encoder of a segmentation network, except its head."""
    assert isinstance(model, FeaturePyramid)
    own = model.encoder.state_dict()
    model.encoder.load_state_dict({name: value for name, value in source.state_dict().items() if name in own})


def training_tensors(dataset: Any, recipe: SegmentationRecipe, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the images (n, c, h, w) and label maps (n, h, w) of the sequences of a recipe, as uint8."""
    indices = np.arange(len(dataset))
    if recipe.sequences:
        indices = np.concatenate([*select_sequences(dataset, recipe.sequences).values()])
    images, labels = (
        torch.from_numpy(np.ascontiguousarray(read(indices))) for read in (dataset.images, dataset.label_maps)
    )
    return images.to(device).permute(0, 3, 1, 2), labels.to(device)


@torch.no_grad()
def evaluate_segmentation(model: nn.Module, dataset: Any, device: torch.device) -> dict[str, float]:
    """Return pixel accuracy and mean IoU of a model in per cent, in eval mode and float32."""
    model.eval()
    lines = []
    for start in range(0, len(dataset), EVALUATION_BATCH):
        indices = np.arange(start, min(start + EVALUATION_BATCH, len(dataset)))
        images = torch.from_numpy(dataset.images(indices)).to(device).permute(0, 3, 1, 2).to(torch.float32).div(255)
        logits = model(images.contiguous(memory_format=torch.channels_last))
        domain = {"name": "clean", "severity": 0, "round": 0}
        line = {"batch": len(lines), "segment": 0, "domain": domain, "images": len(indices)}
        lines.append(line | compare(logits, torch.from_numpy(dataset.label_maps(indices))))
    record = RunRecord({}, lines)
    assert record.mean_error is not None
    assert record.mean_iou is not None
    return {"accuracy": round(100 - record.mean_error, 3), "mean_iou": round(record.mean_iou, 3)}
