"""driftlaw: test-time adaptation (TTA) of image classifiers in PyTorch.

An adapter wraps a trained model and updates it during inference, without labels, so that accuracy recovers when the
input distribution changes. The main method is Layer-wise Auto-Weighting (LAW, WACV 2024)::

    adapter = driftlaw.adapt(model)      # the model is copied and never changed
    logits = adapter(images)             # images (n, c, h, w) in [0, 1]; predicts, then updates
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from driftlaw import _deprecated

__version__ = "0.1.0"

if TYPE_CHECKING:
    from torch import nn

    from driftlaw.base import Adapter
    from driftlaw.corruptions import corrupt, list_corruptions
    from driftlaw.evaluation import run
    from driftlaw.methods import list_methods
    from driftlaw.models import load_model
    from driftlaw.pool import AdapterPool
    from driftlaw.serving.client import Client
    from driftlaw.streams import make_stream
else:
    _MODULES = {"corrupt": "corruptions", "list_corruptions": "corruptions", "list_methods": "methods"}
    _MODULES |= {"load_model": "models", "make_stream": "streams", "run": "evaluation"}
    _MODULES |= {"AdapterPool": "pool", "Client": "serving.client"}

    def __getattr__(name: str) -> Any:
        """Import a public function when it is first used, because torch takes seconds to import."""
        if name not in _MODULES:
            raise AttributeError(f"module 'driftlaw' has no attribute '{name}'")
        return globals().setdefault(name, getattr(import_module(f"driftlaw.{_MODULES[name]}"), name))

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


__all__ = ["AdapterPool", "Client", "adapt", "corrupt", "list_corruptions", "list_methods", "load_model"]
__all__ += ["make_stream", "run"]


@_deprecated.renamed_keywords(source="train_data")
def adapt(
    model: nn.Module,
    method: str | type[Adapter] | None = None,
    *,
    preset: str | None = None,
    seed: int = 0,
    train_data: Any = None,
    mean: Any = None,
    std: Any = None,
    inputs: Literal["normalized", "unit"] | None = None,
    group: Any = None,
    **settings: Any,
) -> Adapter:
    """Return an adapter: a copy of ``model`` that is updated while it is used.

    Call the adapter like the model. Each call returns logits and updates the copy.

    Args:
        model: maps images (n, c, h, w) in [0, 1] to logits, or to a tuple, dict or object that contains them. If it
            expects normalised images, pass ``mean`` and ``std``. DataParallel and torch.compile wrappers are removed
            in the copy.
        method: a name of ``list_methods()``, or a class: your own subclass of ``driftlaw.base.Adapter``. Default:
            ``"law"``, or ``"norm"`` for networks with logits per pixel and BatchNorm layers.
        preset: a benchmark from which to take the method's settings, such as ``"cifar10-c"``.
        seed: seed for all random numbers of the method.
        train_data: the training data, for methods that need it: a dataset of ``driftlaw.datasets``, or a torch
            ``Dataset`` of (image, label).
        mean: for a model that expects (x − mean) / std: one number per channel, one for all channels, or a name such as
            ``"imagenet"``, which states std as well.
        std: the standard deviation that belongs to ``mean``.
        inputs: what the adapter receives if ``mean`` and ``std`` are given: ``"normalized"`` images, the batches of
            your loader as they are (default), or images in [0, 1] (``"unit"``). Bytes (uint8) work with both.
        group: a process group of ``torch.distributed``, such as ``torch.distributed.group.WORLD``. Its ranks adapt one
            model: each passes its part of every batch and receives the logits of that part. Losses, gradients, batch
            statistics and decisions are those of the whole batch.
        **settings: settings of the method, which replace those of the preset. Most methods have ``statistics``; its
            default ``"auto"`` fits every batch size.

    Raises:
        UsageError: the method or preset is unknown, a setting is invalid, or the method cannot adapt this model. With
            ``group``, also if the ranks differ in model, method or settings.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.Flatten(),
    ...                             torch.nn.Linear(8 * 30 * 30, 4))
    >>> adapter = adapt(model, tau=0.6)
    >>> adapter(torch.rand(16, 3, 32, 32)).shape
    torch.Size([16, 4])
    """
    from torch.utils.data import Dataset

    from driftlaw.base import preset_settings
    from driftlaw.base.find_method import find_method
    from driftlaw.errors import UsageError
    from driftlaw.methods import default_method, list_methods, make_adapter
    from driftlaw.settings import list_presets, merge, read_preset

    method = default_method(model) if method is None else method
    if not isinstance(method, str | type):
        expected = "the name of a method, such as 'law', or a subclass of driftlaw.base.Adapter"
        raise UsageError(f"The method is of type {type(method).__name__}. Expected {expected}.")
    if method in list_presets() and method not in list_methods():
        raise UsageError(f"'{method}' is a preset, not a method. Pass it as preset='{method}'.")

    kind = find_method(method)
    if isinstance(train_data, Dataset) and kind.needs_train_data and kind.__module__.startswith("driftlaw."):
        from driftlaw.datasets.torch_dataset import as_image_dataset  # users' methods receive their data unchanged

        train_data = as_image_dataset(train_data)
    given = {"mean": mean, "std": std, "inputs": inputs}
    settings |= {name: value for name, value in given.items() if value is not None}
    benchmark = {} if preset is None else preset_settings(read_preset(preset), kind.name)
    return make_adapter(kind, model, merge(benchmark, settings), seed=seed, train_data=train_data, group=group)
