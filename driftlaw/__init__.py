"""driftlaw adapts a trained network to a drifting stream while it answers, without labels or its training data.

adapter = driftlaw.adapt(model)      # the caller's model is copied, never touched
logits = adapter(images)             # images (n, c, h, w) in [0, 1]; answers, then learns
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

__version__ = "0.1.0"

if TYPE_CHECKING:
    from torch import Tensor, nn

    from driftlaw.base import Adapter, Stream
    from driftlaw.records import RunRecord

__all__ = ["adapt", "corrupt", "list_corruptions", "list_methods", "load_model", "make_stream", "run"]


def adapt(
    model: nn.Module,
    method: str = "law",
    *,
    preset: str | None = None,
    seed: int = 0,
    train_data: Any = None,
    **settings: Any,
) -> Adapter:
    """Return an adapter around a copy of ``model``: call it as you called the model.

    Args:
        model: maps images (n, c, h, w) in [0, 1] to logits, or to a tuple, dict or object that holds them;
            normalisation is its own first layer. The copy of it is freed of DataParallel and torch.compile.
        method: a name of ``list_methods()``.
        preset: a benchmark whose settings for the method are taken, such as ``"cifar10-c"``.
        seed: drives all randomness.
        train_data: the training data, for methods that need it: labelled images of ``driftlaw.datasets``, or a torch
            ``Dataset`` of (image, label).
        **settings: the method's settings, over those of the preset. For small batches most methods take ``statistics``
            (``"batch"``, ``"window"``, ``"mixed"``) and ``minimum_batch``.

    >>> import torch
    >>> network = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.Flatten(),
    ...                               torch.nn.Linear(8 * 30 * 30, 4))
    >>> adapter = adapt(network, tau=0.6)
    >>> adapter(torch.rand(16, 3, 32, 32)).shape
    torch.Size([16, 4])
    """
    from torch.utils.data import Dataset

    from driftlaw.errors import UsageError
    from driftlaw.methods import list_methods, make_adapter, registered_methods
    from driftlaw.settings import list_presets, merge, read_preset

    if method not in list_methods() and method in list_presets():
        raise UsageError(f'«{method}» is a preset, not a method: write preset="{method}"')

    kind = registered_methods().get(method)
    if isinstance(train_data, Dataset) and kind and kind.needs_train_data and kind.__module__.startswith("driftlaw."):
        from driftlaw.datasets.torch_dataset import as_image_dataset  # a method of somebody's own gets what was given

        train_data = as_image_dataset(train_data)
    preset_settings: Mapping[str, Any] = read_preset(preset).get("methods", {}).get(method, {}) if preset else {}
    return make_adapter(method, model, merge(preset_settings, settings), seed=seed, train_data=train_data)


def list_methods() -> list[str]:
    """Return the names of all methods.

    >>> "law" in list_methods()
    True
    """
    from driftlaw import methods as adapters

    return adapters.list_methods()


def corrupt(images: Tensor, name: str, severity: int, *, seed: int = 0, indices: Any = None) -> Tensor:
    """Return corrupted images of the same dtype, device and shape.

    Args:
        images: (n, 3, h, w), float in [0, 1] or uint8.
        name: a name of ``list_corruptions("all")``.
        severity: 1 to 5; CIFAR-C's numbers for small images, ImageNet-C's for large ones.
        seed: drives all randomness.
        indices: (n,), the numbers of the images in their dataset; image i gets the same corruption whatever the batch.
    """
    from driftlaw import corruptions

    return corruptions.corrupt(images, name, severity, seed=seed, indices=indices)


def list_corruptions(kind: Literal["benchmark", "held_out", "all"] = "benchmark") -> list[str]:
    """Return the names of the 15 corruptions of the benchmark, the 4 held out for tuning, or all.

    >>> list_corruptions("held_out")
    ['speckle_noise', 'gaussian_blur', 'spatter', 'saturate']
    """
    from driftlaw import corruptions

    return corruptions.list_corruptions(kind)


def make_stream(preset_or_recipe: str | Mapping[str, Any], **options: Any) -> Stream:
    """Return a stream from a preset's name, a table of settings or a recorded recipe; see ``driftlaw.streams``.

    >>> len(make_stream("embedded", limit=400))
    30
    """
    from driftlaw import streams

    return streams.make_stream(preset_or_recipe, **options)


def run(
    stream: Stream,
    adapter: Adapter,
    *,
    reset_on: Literal["never", "domain"] = "never",
    metrics: Collection[str] = (),
    record: str | Path | None = None,
    measures: Collection[str] | None = None,
    sink: str | Path | None = None,
) -> RunRecord:
    """Evaluate an adapter on a labelled stream and return the record of the run.

    Args:
        stream: labelled batches. Labels are compared with the predictions and never shown to the adapter.
        adapter: adapter to evaluate.
        reset_on: ``domain`` resets the adapter to the source model whenever a new domain starts.
        metrics: metrics besides error and cost: ``calibration``, ``forgetting``, ``drift``.
        record: JSONL file to write and to resume from.
        measures: deprecated alias of ``metrics``.
        sink: deprecated alias of ``record``.

    >>> adapter = adapt(load_model("wrn_16_1-cifar10"), "norm")
    >>> run(make_stream("embedded", limit=20), adapter).finished
    True
    """
    from driftlaw import evaluation

    return evaluation.run(
        stream, adapter, reset_on=reset_on, metrics=metrics, record=record, measures=measures, sink=sink
    )


def load_model(
    name_or_path: str | os.PathLike[str],
    *,
    num_classes: int | None = None,
    folder: str | os.PathLike[str] | None = None,
    architecture: str | None = None,
    normalize: str | Mapping[str, Any] | None = None,
) -> nn.Module:
    """Return a trained network in eval mode; images in [0, 1] go in, normalisation is its first layer.

    Args:
        name_or_path: a name of ``driftlaw list weights``, the path of a file, or ``torchvision:NAME``, ``timm:NAME``,
            ``hf:NAME``.
        num_classes: what you expect; a network with another number is refused.
        folder: the data folder, where it is not the default one.
        architecture: a name of ``driftlaw list models``, for a file whose names and shapes do not tell.
        normalize: a name (``"half"``, ``"imagenet"``, …) or ``mean`` and ``std``, for a file that does not say; where
            the weights do say, another normalisation is refused.
    """
    from driftlaw import models

    return models.load_model(
        name_or_path, num_classes=num_classes, folder=folder, architecture=architecture, normalize=normalize
    )
