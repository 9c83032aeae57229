"""Export of an adapter or model: fix the statistics, fold BatchNorm, write the file, read it back and compare."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from driftlaw import __version__
from driftlaw._deprecated import renamed_keywords
from driftlaw.base import Adapter
from driftlaw.base.inputs import InputConverter
from driftlaw.base.model_copy import copy_model
from driftlaw.components.batch_norm import freeze_batch_stats, use_batch_stats, uses_batch_stats
from driftlaw.errors import DriftlawError, UsageError
from driftlaw.execution.batch_statistics import batch_norm_layers
from driftlaw.export.formats import Format, find_format
from driftlaw.export.inference_module import InferenceModule, extract_model
from driftlaw.files import atomic_path
from driftlaw.models import weights_sha256
from driftlaw.models.fold_batch_norm import ScaleShift, count_batch_norm, fold_batch_norm
from driftlaw.models.normalize import remove_input_normalization

TOLERANCE = 1e-3
"""Largest accepted difference between a logit of the exported file and of the model."""

Statistics = Literal["calibration", "stored"]


@dataclass(frozen=True)
class ExportResult:
    """Description of an exported file.

    Attributes:
        path: the file.
        format: title of the file format.
        bytes: size of the file.
        images: number of images on which the file was compared with the model.
        max_difference: largest difference between a logit of the file and of the model.
        folded: number of BatchNorm layers folded into a convolution.
        scaled: number of BatchNorm layers replaced by a scale and a shift.
        metadata: origin of the model, as stored in the file.
    """

    path: str
    format: str
    bytes: int
    images: int
    max_difference: float
    folded: int
    scaled: int
    metadata: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """Return plain data; the metadata has the key ``facts``."""
        fields = dict(vars(self))
        return fields | {"facts": fields.pop("metadata")}


@renamed_keywords(facts="metadata")
def export_adapter(
    adapter: Adapter,
    path: str | os.PathLike[str],
    calibration_images: Tensor | None = None,
    *,
    statistics: Statistics = "calibration",
    metadata: Mapping[str, Any] | None = None,
) -> ExportResult:
    """Write a model that returns the adapter's current logits, for a device that only runs inference.

    BatchNorm layers that use batch statistics get fixed ones, so that an image can be classified on its own. The
    adapter is not changed.

    Args:
        adapter: an adapter in any state.
        path: a file that ends in .pt2, .onnx or .safetensors. It is written completely or not at all.
        calibration_images: (n, c, h, w) for the statistics, such as the last images of the stream, as the adapter
            receives them: in [0, 1], or normalised. The file expects such images too. If None, the images in the
            adapter's window.
        statistics: ``calibration`` computes statistics from the images, ``stored`` uses those of training. Methods
            that keep their own statistics keep them in either case.
        metadata: additional plain data to store in the file.

    Raises:
        UsageError: there are no images, or the format cannot hold the model.
        DriftlawError: the file and the model return different logits.
    """
    like = next(adapter.model.parameters())
    window = adapter.window
    if calibration_images is not None:
        images = adapter.inputs.to_unit(calibration_images, adapter.model)
    elif window is not None and window.filled:
        images = window.recent
    else:
        raise UsageError(
            "An exported model needs fixed BatchNorm statistics. Pass calibration_images, for example the last few "
            "hundred images of the stream. An adapter with statistics='auto' uses its most recent images."
        )
    images = images.to(like.device, like.dtype)
    model = extract_model(adapter, images)
    normalization = {}
    if adapter.inputs.normalized:  # the file accepts what the adapter accepts
        images, model = adapter.inputs.from_unit(images, adapter.model), remove_input_normalization(model)
        normalization = dict(zip(("mean", "std"), adapter.inputs.mean_std or (), strict=True))
    uses_batch = any(uses_batch_stats(layer) for layer in batch_norm_layers(model))
    origin = {"method": adapter.name, "settings": adapter.config.model_dump(mode="json"), "steps": adapter.steps}
    origin |= dict(metadata or {})
    return _export(model, Path(path), images, statistics if uses_batch else "own", origin, normalization)


@renamed_keywords(facts="metadata")
def export_model(
    model: nn.Module,
    path: str | os.PathLike[str],
    images: Tensor,
    *,
    statistics: Statistics = "calibration",
    metadata: Mapping[str, Any] | None = None,
) -> ExportResult:
    """Write a model that was not adapted, in the same formats as ``export_adapter``.

    Args:
        model: maps images to logits. It is not changed.
        path: a file that ends in .pt2, .onnx or .safetensors.
        images: (n, c, h, w) in [0, 1], for the statistics and for the comparison.
        statistics: ``calibration`` computes BatchNorm statistics from the images, ``stored`` keeps the model's.
        metadata: additional plain data to store in the file.
    """
    model = copy_model(model)
    images = InputConverter().to_unit(images, model)
    if statistics == "calibration":
        use_batch_stats(model)
    return _export(model, Path(path), images, statistics, {"method": None, "steps": 0} | dict(metadata or {}))


@torch.no_grad()
def _export(
    model: nn.Module,
    path: Path,
    images: Tensor,
    statistics: str,
    origin: dict[str, Any],
    normalization: Mapping[str, Any] | None = None,
) -> ExportResult:
    file_format = find_format(path)
    # On a CPU, sums over channels-last feature maps are less accurate, and the statistics are computed only once.
    images = images.contiguous()
    model = model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    plain = freeze_batch_stats(model, images if statistics == "calibration" else None).requires_grad_(False)
    expected = model(images) if statistics == "calibration" else plain(images)
    if problem := file_format.problem(plain):
        raise UsageError(problem)
    exported = _fold(plain) if file_format.folds else plain
    info = getattr(plain, "info", {})
    metadata = {
        "driftlaw": __version__,
        **origin,
        "statistics": statistics,
        "network": info.get("name", type(plain).__name__),
        "weights": info.get("weights"),
        "weights_sha256": weights_sha256(plain),
        "images": len(images),
        "input": {
            "shape": ["batch", *images.shape[1:]],
            "dtype": str(images.dtype).removeprefix("torch."),
            **(normalization or {"range": [0, 1]}),
        },
        "output": {"shape": ["batch", *expected.shape[1:]], "meaning": "logits"},
    }
    with atomic_path(path) as temporary:
        file_format.write(exported, images, temporary, metadata)
        compared, difference = _compare(file_format, temporary, images, expected)
    scaled = sum(isinstance(layer, ScaleShift) for layer in exported.modules())
    return ExportResult(
        path=str(path),
        format=file_format.title,
        bytes=path.stat().st_size,
        images=compared,
        max_difference=difference,
        folded=count_batch_norm(plain) - scaled - count_batch_norm(exported),
        scaled=scaled,
        metadata=metadata,
    )


def _fold(model: nn.Module) -> nn.Module:
    """Return the model with BatchNorm folded; models that a method combines are folded one by one."""
    if not isinstance(model, InferenceModule):
        return fold_batch_norm(model)
    folded = {name: fold_batch_norm(child) for name, child in model.named_children()}
    return InferenceModule(model.rule, folded, model.config).eval()


def _compare(file_format: Format, path: Path, images: Tensor, expected: Tensor) -> tuple[int, float]:
    """Return the number of compared images and the largest difference of logits, for a batch and for one image."""
    batch, single = (file_format.run(path, inputs).to(expected) for inputs in (images, images[:1]))
    difference = float(torch.cat([batch - expected[: len(batch)], single - expected[:1]]).abs().max())
    if not difference <= TOLERANCE:
        raise DriftlawError(
            f"Logits of the exported file differ from the model's by {difference:.3g}, more than {TOLERANCE:g}. The "
            "file was deleted. Typical causes are random numbers in forward() and code that depends on the batch "
            "size. Try another format."
        )
    return len(batch), difference
