"""driftlaw: test-time adaptation (TTA) of image classifiers in PyTorch.

An adapter wraps a trained model and updates it during inference, without labels, so that accuracy recovers when the
input distribution changes. The main method is Layer-wise Auto-Weighting (LAW, WACV 2024)::

    adapter = driftlaw.adapt(model)      # the model is copied and never changed
    logits = adapter(images)             # images (n, c, h, w) in [0, 1]; predicts, then updates
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from driftlaw import _deprecated

__version__ = "0.1.0"

if TYPE_CHECKING:
    from torch import Tensor, nn

    from driftlaw.base import Adapter, Stream
    from driftlaw.records import RunRecord

__all__ = ["adapt", "corrupt", "list_corruptions", "list_methods", "load_model", "make_stream", "run"]

_deprecated.install()


@_deprecated.renamed_keywords(source="train_data")
def adapt(
    model: nn.Module,
    method: str = "law",
    *,
    preset: str | None = None,
    seed: int = 0,
    train_data: Any = None,
    **settings: Any,
) -> Adapter:
    """Return an adapter: a copy of ``model`` that is updated while it is used.

    Call the adapter like the model. Each call returns logits and updates the copy.

    Args:
        model: maps images (n, c, h, w) in [0, 1] to logits, or to a tuple, dict or object that contains them. Input
            normalisation must be part of the model. DataParallel and torch.compile wrappers are removed in the copy.
        method: a name of ``list_methods()``.
        preset: a benchmark from which to take the method's settings, such as ``"cifar10-c"``.
        seed: seed for all random numbers of the method.
        train_data: the training data, for methods that need it: a dataset of ``driftlaw.datasets``, or a torch
            ``Dataset`` of (image, label).
        **settings: settings of the method, which replace those of the preset. For small batches most methods have
            ``statistics`` (``"batch"``, ``"window"``, ``"mixed"``) and ``minimum_batch``.

    Raises:
        UsageError: the method or preset is unknown, a setting is invalid, or the method cannot adapt this model.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.Flatten(),
    ...                             torch.nn.Linear(8 * 30 * 30, 4))
    >>> adapter = adapt(model, tau=0.6)
    >>> adapter(torch.rand(16, 3, 32, 32)).shape
    torch.Size([16, 4])
    """
    from torch.utils.data import Dataset

    from driftlaw.errors import UsageError
    from driftlaw.methods import list_methods, make_adapter, registered_methods
    from driftlaw.settings import list_presets, merge, read_preset

    if method not in list_methods() and method in list_presets():
        raise UsageError(f"'{method}' is a preset, not a method. Pass it as preset='{method}'.")

    kind = registered_methods().get(method)
    if isinstance(train_data, Dataset) and kind and kind.needs_train_data and kind.__module__.startswith("driftlaw."):
        from driftlaw.datasets.torch_dataset import as_image_dataset  # users' methods receive their data unchanged

        train_data = as_image_dataset(train_data)
    preset_settings: Mapping[str, Any] = read_preset(preset).get("methods", {}).get(method, {}) if preset else {}
    return make_adapter(method, model, merge(preset_settings, settings), seed=seed, train_data=train_data)


def list_methods() -> list[str]:
    """Return the names of all methods.

    >>> "law" in list_methods()
    True
    """
    from driftlaw import methods

    return methods.list_methods()


def corrupt(images: Tensor, name: str, severity: int, *, seed: int = 0, indices: Any = None) -> Tensor:
    """Return corrupted copies of images, with the same dtype, device and shape.

    Args:
        images: (n, 3, h, w), float in [0, 1] or uint8.
        name: a name of ``list_corruptions("all")``.
        severity: 1 to 5. Small images use the parameters of CIFAR-C, large ones those of ImageNet-C.
        seed: seed for all random numbers.
        indices: (n,) indices of the images in their dataset. The corruption of an image depends on its index, not on
            the batch it is in. If None, 0, 1, 2, ….

    >>> import torch
    >>> corrupt(torch.rand(2, 3, 32, 32), "fog", severity=5).shape
    torch.Size([2, 3, 32, 32])
    """
    from driftlaw import corruptions

    return corruptions.corrupt(images, name, severity, seed=seed, indices=indices)


def list_corruptions(kind: Literal["benchmark", "held_out", "all"] = "benchmark") -> list[str]:
    """Return the names of the 15 corruptions of the benchmark, of the 4 held out for tuning, or of all.

    >>> list_corruptions("held_out")
    ['speckle_noise', 'gaussian_blur', 'spatter', 'saturate']
    """
    from driftlaw import corruptions

    return corruptions.list_corruptions(kind)


def make_stream(preset_or_recipe: str | Mapping[str, Any], **options: Any) -> Stream:
    """Return a labelled stream of corrupted images.

    Args:
        preset_or_recipe: a name of ``driftlaw list presets``, a dict of stream settings, or a recipe from a record.
        **options: options of ``driftlaw.streams.make_stream``, such as ``limit``, ``data_dir`` and ``device``.

    >>> len(make_stream("embedded", limit=400))
    30
    """
    from driftlaw import streams

    return streams.make_stream(preset_or_recipe, **options)


@_deprecated.renamed_keywords(measures="metrics", sink="record")
def run(
    stream: Stream,
    adapter: Adapter,
    *,
    reset_on: Literal["never", "domain"] = "never",
    metrics: Collection[str] = (),
    record: str | Path | None = None,
) -> RunRecord:
    """Evaluate an adapter on a labelled stream and return the record of the run.

    Args:
        stream: labelled batches. Labels are compared with the predictions and never shown to the adapter.
        adapter: adapter to evaluate.
        reset_on: ``domain`` resets the adapter to the source model whenever a new domain starts.
        metrics: metrics besides error and cost: ``calibration``, ``forgetting``, ``drift``.
        record: JSONL file to write and to resume from.

    >>> adapter = adapt(load_model("wrn_16_1-cifar10"), "norm")
    >>> run(make_stream("embedded", limit=20), adapter).finished
    True
    """
    from driftlaw import evaluation

    return evaluation.run(stream, adapter, reset_on=reset_on, metrics=metrics, record=record)


@_deprecated.renamed_keywords(normalise="normalize")
def load_model(
    name_or_path: str | os.PathLike[str],
    *,
    num_classes: int | None = None,
    folder: str | os.PathLike[str] | None = None,
    architecture: str | None = None,
    normalize: str | Mapping[str, Any] | None = None,
) -> nn.Module:
    """Return a trained model in eval mode, with input normalisation as its first layer.

    Args:
        name_or_path: a name of ``driftlaw list weights``, the path of a file, or ``torchvision:NAME``, ``timm:NAME``,
            ``hf:NAME``.
        num_classes: expected number of classes; a model with another number is an error.
        folder: the data directory; see ``driftlaw.paths.data_dir``.
        architecture: a name of ``driftlaw list models``, for a file from which it cannot be inferred.
        normalize: a name (``"half"``, ``"imagenet"``, …), or a dict with ``mean`` and ``std``, for a file that does not
            store it. An error if the file stores another one.

    >>> load_model("wrn_16_1-cifar10", num_classes=10).training
    False
    """
    from driftlaw import models

    return models.load_model(
        name_or_path, num_classes=num_classes, folder=folder, architecture=architecture, normalize=normalize
    )
