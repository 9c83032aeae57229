"""Who is measured: a forward pass, the plain references, and our methods under named settings, all called alike."""

from __future__ import annotations

import copy
import functools
import importlib.util
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.models import Network, make_batches, make_source
from driftlaw.base import Adapter
from driftlaw.components.train_data import TrainData
from driftlaw.errors import UsageError
from driftlaw.execution.compile import has_cpp_compiler
from driftlaw.hardware import to_device
from driftlaw.methods import list_methods, make_adapter, registered_methods
from driftlaw.paths import PACKAGE
from driftlaw.settings import merge, parse, parse_assignments, read_preset

PLAIN = PACKAGE.parent / "benchmarks"
FORWARD, PLAIN_TENT, PLAIN_LAW = "forward", "plain_tent", "plain_law"
REFERENCES = (FORWARD, PLAIN_TENT, PLAIN_LAW)
RATE = 1e-6
"""The learning rate of all who have one: a random network does not collapse over a long stream, and a step costs the
same as at any other rate."""

Step = Callable[[Tensor], Any]


@dataclass(frozen=True)
class Variant:
    """One way of doing a step.

    Attributes:
        label: what tables and figures call it.
        method: one of ``REFERENCES``, or a name of ``list_methods()``.
        settings: the method's.
        preset: whose settings stand below those.
    """

    label: str
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    preset: str | None = None

    @property
    def is_ours(self) -> bool:
        """Whether it is a method of the package."""
        return self.method not in REFERENCES

    def facts(self) -> dict[str, Any]:
        """Return what a record says of it, as plain data; of a method of ours all of its settings too."""
        if not self.is_ours:
            return asdict(self)
        config = parse(registered_methods()[self.method].Config, settings_of(self), where=f"method {self.method}")
        return asdict(self) | {"settings_in_full": config.model_dump(mode="json")}


REFERENCE_VARIANTS = (
    Variant("forward only", FORWARD),
    Variant("plain TENT", PLAIN_TENT),
    Variant("plain LAW", PLAIN_LAW),
)


def default_variants(methods: Sequence[str] = ("norm", "tent", "law")) -> list[Variant]:
    """Return a forward pass, the plain references, and each method in float32, as it comes, and fast."""
    in_float32 = {"precision": "float32", "capture": "off"}
    variants = list(REFERENCE_VARIANTS)
    for method in methods:
        variants.append(Variant(f"{method}, float32", method, in_float32))
        variants.append(Variant(method, method))
        if method == "law":
            variants.append(Variant("law, fast", method, preset="fast"))
    return variants


def parse_variant(text: str) -> Variant:
    """Read a variant as a user writes it: ``LABEL: METHOD key=value key=value``; the label may be left out.

    >>> parse_variant("every tenth: law fisher_every=10")
    Variant(label='every tenth', method='law', settings={'fisher_every': 10}, preset=None)
    >>> parse_variant("law preset=fast tau=0.6").preset
    'fast'
    """
    label, colon, rest = text.partition(":")
    words = (rest if colon else text).split()
    if not words:
        raise UsageError(
            f"--variant «{text}» names no method: expected LABEL: METHOD key=value, such as fast: law tau=0.6"
        )
    method, *assignments = words
    settings = parse_assignments(assignments)
    preset = settings.pop("preset", None)
    return Variant(label.strip() if colon else text.strip(), method, settings, preset)


def sort_out(variants: Iterable[Variant], device: torch.device) -> tuple[list[Variant], list[dict[str, str]]]:
    """Return the variants that can be measured on a device, and for each of the others its label and why not."""
    fit, left_out = [], []
    for variant in variants:
        reason = _reason_against(variant, device)
        if reason is None:
            fit.append(variant)
        else:
            left_out.append({"label": variant.label, "why": reason})
    labels = [variant.label for variant in fit]
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        named = ", ".join(f"«{label}»" for label in twice)  # a label may hold a comma
        raise UsageError(f"more than one variant is called {named}: give each a label of its own")
    return fit, left_out


def _reason_against(variant: Variant, device: torch.device) -> str | None:
    if not variant.is_ours:
        return None
    if variant.method not in list_methods():
        return f"there is no method «{variant.method}»: {', '.join(list_methods())}"
    kind = registered_methods()[variant.method]
    try:
        config = parse(kind.Config, settings_of(variant), where=f"method {variant.method}")
    except UsageError as error:
        return " ".join(str(error).split())
    if getattr(config, "compiled", False) and device.type == "cpu" and not has_cpp_compiler():
        return "there is no C++ compiler here to compile it with"
    return None


def settings_of(variant: Variant) -> dict[str, Any]:
    """Return the settings a method of ours is made with: the preset's, the variant's over them, and the rate."""
    below = read_preset(variant.preset).get("methods", {}).get(variant.method, {}) if variant.preset else {}
    settings = merge(below, variant.settings)
    fields = registered_methods()[variant.method].Config.model_fields
    return settings | ({"learning_rate": RATE} if "learning_rate" in fields else {})


class Contender:
    """A variant at work on one network and one batch size: made on the device, warm when it has run a few steps.

    Attributes:
        cycle: after how many steps its work repeats itself; a fair mean is over whole cycles.
        settling: how many steps pass before the cycle begins.
    """

    def __init__(
        self,
        variant: Variant,
        network: Network,
        batch_size: int,
        *,
        device: torch.device,
        seed: int = 0,
        pool: Tensor | None = None,
    ) -> None:
        self.variant, self.device = variant, device
        self.cycle, self.settling = 1, 0
        self.step = self._make_step(network, seed)
        batches = make_batches(batch_size, network.side, seed=seed, pool=pool)
        # Ours are handed images as the run loop hands them; the others get them as they are read from disk.
        self.batches = [to_device(images, device) if variant.is_ours else images.to(device) for images in batches]
        self._turn = count()

    def run(self, steps: int) -> Any:
        """Take some steps on the batches in turn; return what the last one returned."""
        answer = None
        for _ in range(steps):
            answer = self.step(self.batches[next(self._turn) % len(self.batches)])
        return answer

    def warm_up(self, steps: int) -> None:
        """Take some steps, or as many as it needs until its cycle has begun and, on a GPU, all of it is captured."""
        captured = 4 * self.cycle if self.device.type == "cuda" and self.cycle > 1 else 0
        self.run(self.settling + max(steps, captured))

    def whole_cycles(self, steps: int) -> int:
        """Return the least number of whole cycles' steps that is not below ``steps``."""
        return -(-steps // self.cycle) * self.cycle

    def _make_step(self, network: Network, seed: int) -> Step:
        variant = self.variant
        own = copy.deepcopy(network.model).to(self.device)
        if variant.method == FORWARD:
            return torch.no_grad()(own.eval())
        if variant.method == PLAIN_TENT:
            return load_plain(PLAIN_TENT).PlainTent(own, learning_rate=RATE).step
        if variant.method == PLAIN_LAW:
            return load_plain(PLAIN_LAW).PlainLaw(own, learning_rate=RATE, seed=seed).step
        adapter = _make_adapter(variant, network, own, seed)
        self.cycle = int(getattr(adapter.config, "fisher_every", 1))
        self.settling = int(getattr(adapter.config, "fisher_settling", 0)) if self.cycle > 1 else 0
        return adapter.step


def _make_adapter(variant: Variant, network: Network, own: nn.Module, seed: int) -> Adapter:
    if not registered_methods()[variant.method].needs_train_data:
        return make_adapter(variant.method, own, settings_of(variant), seed=seed)
    with TemporaryDirectory() as folder:  # what is made of made-up data is not worth keeping
        source = TrainData(make_source(network, seed), cache=Path(folder))
        return make_adapter(variant.method, own, settings_of(variant), seed=seed, train_data=source)


@functools.cache
def load_plain(name: str) -> ModuleType:
    """Return a plain reference, which lies beside the package in a checkout and is not part of a wheel."""
    path = PLAIN / f"{name}.py"
    if not path.is_file():
        raise UsageError(f"the plain version to compare with is not at {path}: run this from a clone of the repository")
    spec = importlib.util.spec_from_file_location(f"driftlaw_{name}", path)
    assert spec is not None  # a .py file always has a loader
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
