"""What is measured: a forward pass, the naive implementations, and driftlaw's methods under named settings."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.models import BenchModel, make_batches, make_train_data
from benchmarks.naive_law import NaiveLaw
from benchmarks.naive_tent import NaiveTent
from driftlaw.base import Adapter, preset_settings
from driftlaw.components.train_data import TrainData
from driftlaw.errors import UsageError
from driftlaw.execution.compile import has_cpp_compiler
from driftlaw.hardware import to_device
from driftlaw.methods import list_methods, make_adapter, registered_methods
from driftlaw.settings import merge, parse, parse_assignments, read_preset

FORWARD, NAIVE_TENT, NAIVE_LAW = "forward", "plain_tent", "plain_law"  # values of the record key `method`
BASELINES = (FORWARD, NAIVE_TENT, NAIVE_LAW)
LEARNING_RATE = 1e-6
"""Learning rate of every target that has one: random weights do not collapse, and a step costs the same as at any
other rate."""

Step = Callable[[Tensor], Any]


@dataclass(frozen=True)
class Variant:
    """A method with settings.

    Attributes:
        label: name in tables and figures.
        method: one of ``BASELINES``, or a name of ``list_methods()``.
        settings: settings of the method.
        preset: preset whose settings apply below ``settings``.
    """

    label: str
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    preset: str | None = None

    @property
    def is_adapter(self) -> bool:
        """True if it is a method of driftlaw, and not a baseline."""
        return self.method not in BASELINES

    def info(self) -> dict[str, Any]:
        """Return the description for a record, for driftlaw's methods with all settings."""
        if not self.is_adapter:
            return asdict(self)
        config = parse(registered_methods()[self.method].Config, resolve_settings(self), where=f"method {self.method}")
        return asdict(self) | {"settings_in_full": config.model_dump(mode="json")}


BASELINE_VARIANTS = (
    Variant("forward only", FORWARD),
    Variant("naive TENT", NAIVE_TENT),
    Variant("naive LAW", NAIVE_LAW),
)


def default_variants(methods: Sequence[str] = ("norm", "tent", "law")) -> list[Variant]:
    """Return the baselines, and each method in float32 and with its defaults; LAW also with the preset ``fast``."""
    float32 = {"precision": "float32", "capture": "off"}
    variants = list(BASELINE_VARIANTS)
    for method in methods:
        variants.append(Variant(f"{method}, float32", method, float32))
        variants.append(Variant(method, method))
        if method == "law":
            variants.append(Variant("law, fast", method, preset="fast"))
    return variants


def parse_variant(text: str) -> Variant:
    """Parse ``LABEL: METHOD key=value key=value``; the label may be omitted.

    >>> parse_variant("every tenth: law fisher_every=10")
    Variant(label='every tenth', method='law', settings={'fisher_every': 10}, preset=None)
    >>> parse_variant("law preset=fast tau=0.6").preset
    'fast'
    """
    label, colon, rest = text.partition(":")
    words = (rest if colon else text).split()
    if not words:
        raise UsageError(
            f"--variant '{text}' has no method. Expected LABEL: METHOD key=value, such as 'low tau: law tau=0.6'."
        )
    method, *assignments = words
    settings = parse_assignments(assignments)
    preset = settings.pop("preset", None)
    return Variant(label.strip() if colon else text.strip(), method, settings, preset)


def select_supported(variants: Iterable[Variant], device: torch.device) -> tuple[list[Variant], list[dict[str, str]]]:
    """Return the variants that can be measured on a device; and for each other variant, its label and the reason."""
    supported, skipped = [], []
    for variant in variants:
        reason = _reason_to_skip(variant, device)
        if reason is None:
            supported.append(variant)
        else:
            skipped.append({"label": variant.label, "why": reason})
    labels = [variant.label for variant in supported]
    if duplicates := sorted({label for label in labels if labels.count(label) > 1}):
        listed = ", ".join(f"'{label}'" for label in duplicates)  # labels may contain commas
        raise UsageError(f"Several variants have the label {listed}. Give each variant its own label.")
    return supported, skipped


def _reason_to_skip(variant: Variant, device: torch.device) -> str | None:
    if not variant.is_adapter:
        return None
    if variant.method not in list_methods():
        return f"unknown method '{variant.method}'; known methods: {', '.join(list_methods())}"
    try:
        config = parse(
            registered_methods()[variant.method].Config, resolve_settings(variant), where=f"method {variant.method}"
        )
    except UsageError as error:
        return " ".join(str(error).split())
    if getattr(config, "compiled", False) and device.type == "cpu" and not has_cpp_compiler():
        return "compilation needs a C++ compiler, and none was found"
    return None


def resolve_settings(variant: Variant) -> dict[str, Any]:
    """Return the settings of a method: the preset's, then the variant's, then the learning rate of all benchmarks."""
    fields = registered_methods()[variant.method].Config.model_fields
    every_step = {"statistics": "batch"} if "statistics" in fields else {}  # small batches are not collected
    preset = preset_settings(read_preset(variant.preset), variant.method) if variant.preset else {}
    settings = merge(every_step | preset, variant.settings)
    return settings | ({"learning_rate": LEARNING_RATE} if "learning_rate" in fields else {})


class BenchTarget:
    """A variant on one model and batch size, created on the device.

    Attributes:
        cycle: number of steps after which the work repeats; a fair mean is over whole cycles.
        settling: number of steps before the first cycle.
    """

    def __init__(
        self,
        variant: Variant,
        model: BenchModel,
        batch_size: int,
        *,
        device: torch.device,
        seed: int = 0,
        pool: Tensor | None = None,
    ) -> None:
        self.variant, self.device = variant, device
        self.cycle, self.settling = 1, 0
        self.step = self._make_step(model, seed)
        batches = make_batches(batch_size, model.image_size, seed=seed, pool=pool)
        # Methods receive images as the evaluator passes them, baselines as they are read from disk.
        self.batches = [to_device(images, device) if variant.is_adapter else images.to(device) for images in batches]
        self._counter = count()

    def run(self, steps: int) -> Any:
        """Run some steps on the batches in turn and return the result of the last one."""
        result = None
        for _ in range(steps):
            result = self.step(self.batches[next(self._counter) % len(self.batches)])
        return result

    def warm_up(self, steps: int) -> None:
        """Run at least ``steps`` steps, until the first cycle has begun and, on a GPU, all steps are captured."""
        captured = 4 * self.cycle if self.device.type == "cuda" and self.cycle > 1 else 0
        self.run(self.settling + max(steps, captured))

    def whole_cycles(self, steps: int) -> int:
        """Return the smallest multiple of the cycle that is at least ``steps``."""
        return -(-steps // self.cycle) * self.cycle

    def _make_step(self, model: BenchModel, seed: int) -> Step:
        variant = self.variant
        copied = copy.deepcopy(model.model).to(self.device)
        if variant.method == FORWARD:
            return torch.no_grad()(copied.eval())
        if variant.method == NAIVE_TENT:
            return NaiveTent(copied, learning_rate=LEARNING_RATE).step
        if variant.method == NAIVE_LAW:
            return NaiveLaw(copied, learning_rate=LEARNING_RATE, seed=seed).step
        adapter = _make_adapter(variant, model, copied, seed)
        self.cycle = int(getattr(adapter.config, "fisher_every", 1))
        self.settling = int(getattr(adapter.config, "fisher_settling", 0)) if self.cycle > 1 else 0
        return adapter.step


def _make_adapter(variant: Variant, model: BenchModel, copied: nn.Module, seed: int) -> Adapter:
    if not registered_methods()[variant.method].needs_train_data:
        return make_adapter(variant.method, copied, resolve_settings(variant), seed=seed)
    with TemporaryDirectory() as folder:  # statistics of random images must not stay in the user's cache
        train_data = TrainData(make_train_data(model, seed), cache=Path(folder))
        return make_adapter(variant.method, copied, resolve_settings(variant), seed=seed, train_data=train_data)
