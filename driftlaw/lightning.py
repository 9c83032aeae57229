"""A Lightning callback that lets the network of a LightningModule adapt while it is tested or predicts."""

from __future__ import annotations

import importlib
from typing import Any

from torch import nn

from driftlaw.base import Adapter
from driftlaw.errors import UsageError
from driftlaw.methods import make_adapter
from driftlaw.settings import merge, read_preset

PACKAGES = ("lightning.pytorch", "pytorch_lightning")


def _find_callback() -> tuple[type, str]:
    """Return Lightning's Callback, and where there is none, why not."""
    reasons = []
    for package in PACKAGES:
        try:
            return importlib.import_module(package).Callback, ""
        except (ImportError, RuntimeError) as error:  # RuntimeError: a torchvision built for another torch
            reasons.append(f"{package}: {error}")
    return object, "; ".join(reasons)


Callback, NO_LIGHTNING = _find_callback()


class AdaptWhileTesting(Callback):  # type: ignore[misc, valid-type]
    """Puts an adapter in the place of a LightningModule's network for ``test`` and ``predict``, and takes it out again.

    The module's own steps stay as they are: what they call as their network answers and learns. Training and validation
    never see the adapter, and afterwards the network is the one it was. Every test or prediction starts from it anew;
    the adapter of the last one stays in ``adapter``.

    Args:
        method: a name of ``driftlaw.list_methods()``.
        network: the attribute that holds the network; needed where the module has several with parameters.
        preset: a benchmark whose settings for the method are taken.
        seed: drives all randomness.
        source: the training data, for methods that need it.
        **settings: the method's settings, over those of the preset.

    Example:
        ``Trainer(callbacks=[AdaptWhileTesting("law", statistics="window")]).test(module, loader)``
    """

    def __init__(
        self,
        method: str = "law",
        *,
        network: str | None = None,
        preset: str | None = None,
        seed: int = 0,
        source: Any = None,
        **settings: Any,
    ) -> None:
        if NO_LIGHTNING:
            raise UsageError(f"this callback needs Lightning: pip install lightning ({NO_LIGHTNING})")
        super().__init__()
        of_preset = read_preset(preset).get("methods", {}).get(method, {}) if preset else {}
        self.method, self.settings = method, merge(of_preset, settings)
        self.network, self.seed, self.source = network, seed, source
        self.adapter: Adapter | None = None
        self._replaced: tuple[nn.Module, str, nn.Module] | None = None

    def on_test_start(self, trainer: Any, pl_module: nn.Module) -> None:
        """Put the adapter in."""
        self._put_in(pl_module)

    def on_predict_start(self, trainer: Any, pl_module: nn.Module) -> None:
        """Put the adapter in."""
        self._put_in(pl_module)

    def on_test_end(self, trainer: Any, pl_module: nn.Module) -> None:
        """Take the adapter out."""
        self._take_out()

    def on_predict_end(self, trainer: Any, pl_module: nn.Module) -> None:
        """Take the adapter out."""
        self._take_out()

    def on_exception(self, trainer: Any, pl_module: nn.Module, exception: BaseException) -> None:
        """Take the adapter out."""
        self._take_out()

    def _put_in(self, module: nn.Module) -> None:
        name = self.network or _only_network(module)
        network = getattr(module, name, None)
        if not isinstance(network, nn.Module):
            found = ", ".join(name for name, _ in module.named_children()) or "none"
            raise UsageError(f"{type(module).__name__} has no network «{name}»; its networks: {found}")
        self.adapter = make_adapter(self.method, network, self.settings, seed=self.seed, train_data=self.source)
        self._replaced = (module, name, network)
        setattr(module, name, self.adapter)

    def _take_out(self) -> None:
        if self._replaced is not None:
            module, name, network = self._replaced
            setattr(module, name, network)
            self._replaced = None


def _only_network(module: nn.Module) -> str:
    """Return the name of the one child of a module that has parameters."""
    names = [name for name, child in module.named_children() if any(True for _ in child.parameters())]
    if len(names) != 1:
        found = ", ".join(names) or "none"
        raise UsageError(
            f"{type(module).__name__} holds {len(names)} networks with parameters ({found}): expected one; "
            "say which as network=…"
        )
    return names[0]
