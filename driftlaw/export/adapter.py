"""From an adapter to a file: its statistics fixed, its network folded, written, read back and compared."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from driftlaw import __version__
from driftlaw.base import Adapter
from driftlaw.base.inputs import ValueCheck, shape_problems
from driftlaw.base.model_copy import own_copy
from driftlaw.components.batch_norm import (
    batch_norm_layers,
    freeze_batch_stats,
    use_batch_stats,
    uses_batch_stats,
)
from driftlaw.errors import DriftlawError, UsageError, collected
from driftlaw.export.formats import Format, Networks, find_format
from driftlaw.export.inference_module import Answering, answering_network
from driftlaw.files import atomic_path
from driftlaw.models import weights_sha256
from driftlaw.models.fold_batch_norm import ScaleShift, count_batch_norm, fold_batch_norm

TOLERANCE = 1e-3
"""By how much a logit of the file may differ from the network's."""

Statistics = Literal["calibration", "stored"]


@dataclass(frozen=True)
class Exported:
    """What was written.

    Attributes:
        path: the file.
        format: what it is.
        bytes: its size.
        images: how many images the answers were compared on.
        max_difference: the largest difference between a logit of the file, read back, and the network's.
        folded: BatchNorm layers that went into a convolution.
        scaled: BatchNorm layers that became a scale and shift.
        facts: where the network comes from, as it stands in the file.
    """

    path: str
    format: str
    bytes: int
    images: int
    max_difference: float
    folded: int
    scaled: int
    facts: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def export_adapter(
    adapter: Adapter,
    path: str | os.PathLike[str],
    calibration_images: Tensor | None = None,
    *,
    statistics: Statistics = "calibration",
    facts: Mapping[str, Any] | None = None,
) -> Exported:
    """Write what an adapter would answer, had it learned its last: a network that answers an image alone.

    The adapter is not touched. Where it normalises with the batch at hand, the file has the statistics of the
    calibration images; where it stores statistics of its own, those.

    Args:
        adapter: what has been adapting.
        path: a file that ends in .pt2, .onnx or .safetensors; it appears whole, compared, or not at all.
        calibration_images: (n, c, h, w) in [0, 1], such as the stream's last ones; those that a ``window`` remembers
            where left out.
        statistics: ``stored`` takes those the network was trained with instead; images then serve to compare.
        facts: more plain data to keep in the file.

    Raises:
        UsageError: there are no images, or the method or network cannot be written so.
        DriftlawError: the file answers otherwise than the network.
    """
    images = _images_for(adapter, calibration_images)
    network = answering_network(adapter, images)
    kind = "own"
    if any(uses_batch_stats(layer) for layer in batch_norm_layers(network)):
        kind = statistics
    origin = {
        "method": adapter.name,
        "settings": adapter.config.model_dump(mode="json"),
        "steps": adapter.steps,
    }
    return _export(network, Path(path), images, kind, origin | dict(facts or {}))


def export_network(
    model: nn.Module,
    path: str | os.PathLike[str],
    images: Tensor,
    *,
    statistics: Statistics = "calibration",
    facts: Mapping[str, Any] | None = None,
) -> Exported:
    """Write a network that nothing has adapted; ``export_adapter`` says the rest.

    Args:
        model: any network that maps images to logits; it is not touched.
        path: the file.
        images: (n, c, h, w) in [0, 1].
        statistics: its BatchNorm layers get those of the images (``calibration``) or keep theirs (``stored``).
        facts: more plain data to keep in the file.
    """
    network = own_copy(model)
    if statistics == "calibration":
        use_batch_stats(network)
    return _export(network, Path(path), _checked(images), statistics, {"method": None, "steps": 0} | dict(facts or {}))


def _images_for(adapter: Adapter, given: Tensor | None) -> Tensor:
    like = next(adapter.model.parameters())
    if given is None and adapter.recent is not None and adapter.recent.filled:
        given = adapter.recent.images[-adapter.recent.filled :]
    if given is None:
        raise UsageError(
            "an exported network answers images alone and needs fixed statistics: give calibration images, such as the "
            "last hundreds of the stream (an adapter with statistics = «window» remembers its own)"
        )
    return _checked(given).to(like.device, like.dtype)


@torch.no_grad()
def _export(network: nn.Module, path: Path, images: Tensor, statistics: str, origin: dict[str, Any]) -> Exported:
    writer = find_format(path)
    # Sums over channels-last feature maps lose digits on a CPU, and statistics are measured once for good.
    images, network = images.contiguous(), network.to(memory_format=torch.contiguous_format)
    plain = freeze_batch_stats(network, images if statistics == "calibration" else None).requires_grad_(False)
    expected = network(images) if statistics == "calibration" else plain(images)
    networks = Networks(plain, _folded(plain))
    obstacle = writer.obstacle(networks)
    if obstacle:
        raise UsageError(obstacle)
    facts = {"driftlaw": __version__, **origin, "statistics": statistics, **_facts(plain, images, expected)}
    with atomic_path(path) as temporary:
        writer.write(networks, images, temporary, facts)
        compared, difference = _difference(writer, temporary, images, expected)
    scaled = sum(isinstance(layer, ScaleShift) for layer in networks.folded.modules())
    return Exported(
        path=str(path),
        format=writer.title,
        bytes=path.stat().st_size,
        images=compared,
        max_difference=difference,
        folded=count_batch_norm(plain) - scaled - count_batch_norm(networks.folded) if writer.folds else 0,
        scaled=scaled if writer.folds else 0,
        facts=facts,
    )


def _facts(network: nn.Module, images: Tensor, logits: Tensor) -> dict[str, Any]:
    """Return what a file says of its network."""
    info = getattr(network, "info", {})
    dtype = str(images.dtype).removeprefix("torch.")
    return {
        "network": info.get("name", type(network).__name__),
        "weights": info.get("weights"),
        "weights_sha256": weights_sha256(network),
        "images": len(images),
        "input": {"shape": ["batch", *images.shape[1:]], "dtype": dtype, "range": [0, 1]},
        "output": {"shape": ["batch", logits.shape[1]], "meaning": "logits"},
    }


def _checked(images: Tensor) -> Tensor:
    problems = shape_problems(images) or ValueCheck().problems(images)
    if problems:
        raise collected("the network cannot be calibrated on these images:", problems)
    return images


def _folded(network: nn.Module) -> nn.Module:
    """Return the network with BatchNorm folded; where a method answers with several, each of them by itself."""
    if not isinstance(network, Answering):
        return fold_batch_norm(network)
    folded = {name: fold_batch_norm(child) for name, child in network.named_children()}
    return Answering(network.rule, folded, network.config).eval()


def _difference(writer: Format, path: Path, images: Tensor, expected: Tensor) -> tuple[int, float]:
    """Return on how many images the file was asked, and how far it is off; all at once, and one alone."""
    together, alone = writer.answer(path, images).to(expected), writer.answer(path, images[:1]).to(expected)
    both = torch.cat([together - expected[: len(together)], alone - expected[:1]])
    difference = float(both.abs().max())
    if not difference <= TOLERANCE:
        raise DriftlawError(
            f"the file answers otherwise than the network, by {difference:.3g} where {TOLERANCE:g} is the most: it was "
            "not kept. Code that looks at the number of images, or randomness, does this; take another format"
        )
    return len(together), difference
