"""Lightning callback that adapts the model of a LightningModule during ``test`` and ``predict``."""

import importlib
from typing import Any

from torch import nn

from driftlaw._deprecated import renamed_keywords
from driftlaw.base import Adapter, preset_settings
from driftlaw.errors import UsageError
from driftlaw.methods import make_adapter
from driftlaw.settings import merge, read_preset

PACKAGES = ("lightning.pytorch", "pytorch_lightning")


def _import_callback() -> tuple[type, str]:
    """Return Lightning's Callback and an empty string, or object and the reason why Lightning cannot be imported."""
    reasons = []
    for package in PACKAGES:
        try:
            return importlib.import_module(package).Callback, ""
        except (ImportError, RuntimeError) as error:  # RuntimeError: a torchvision built for another torch
            reasons.append(f"{package}: {error}")
    return object, "; ".join(reasons)


Callback, IMPORT_ERROR = _import_callback()


class AdaptWhileTesting(Callback):  # type: ignore[misc, valid-type]
    """Replaces the model of a LightningModule by an adapter during ``test`` and ``predict``, and restores it after.

    The steps of the module stay unchanged: what they call as their model predicts and adapts. Training and validation
    never use the adapter. Every test or prediction starts from the module's own model. The adapter of the last one is
    in the attribute ``adapter``.

    Args:
        method: one of ``driftlaw.list_methods()``.
        network: attribute of the module that contains the model. Needed if several attributes have parameters.
        preset: benchmark whose settings for the method are used.
        seed: seed of all randomness.
        train_data: training data, for methods that need it. ``source`` is a deprecated alias.
        **settings: settings of the method. They override those of the preset.

    Example:
        ``Trainer(callbacks=[AdaptWhileTesting("law", seed=1)]).test(module, loader)``
    """

    @renamed_keywords(source="train_data")
    def __init__(
        self,
        method: str = "law",
        *,
        network: str | None = None,
        preset: str | None = None,
        seed: int = 0,
        train_data: Any = None,
        **settings: Any,
    ) -> None:
        if IMPORT_ERROR:
            raise UsageError(f"This callback needs Lightning ({IMPORT_ERROR}). Install it: pip install lightning")
        super().__init__()
        benchmark = preset_settings(read_preset(preset), method) if preset else {}
        self.method, self.settings = method, merge(benchmark, settings)
        self.network, self.seed, self.train_data = network, seed, train_data
        self.adapter: Adapter | None = None
        self._replaced: tuple[nn.Module, str, nn.Module] | None = None

    def on_test_start(self, trainer: Any, pl_module: nn.Module) -> None:
        """Replace the model by an adapter."""
        kind = type(pl_module).__name__
        children = [name for name, _ in pl_module.named_children()]
        trainable = [name for name, child in pl_module.named_children() if any(True for _ in child.parameters())]
        if self.network is None and len(trainable) != 1:
            raise UsageError(
                f"{kind} has {len(trainable)} attributes with parameters ({', '.join(trainable) or 'none'}), so the "
                "model to adapt is not clear. Name it: AdaptWhileTesting(network='…')."
            )
        name = self.network or trainable[0]
        model = getattr(pl_module, name, None)
        if not isinstance(model, nn.Module):
            raise UsageError(f"{kind} has no model '{name}'. Its modules: {', '.join(children) or 'none'}.")
        self.adapter = make_adapter(self.method, model, self.settings, seed=self.seed, train_data=self.train_data)
        self._replaced = (pl_module, name, model)
        setattr(pl_module, name, self.adapter)

    def on_test_end(self, trainer: Any, pl_module: nn.Module, exception: BaseException | None = None) -> None:
        """Restore the model."""
        if self._replaced is not None:
            module, name, model = self._replaced
            setattr(module, name, model)
            self._replaced = None

    on_predict_start = on_test_start
    on_predict_end = on_exception = on_test_end
