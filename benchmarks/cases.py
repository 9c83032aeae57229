"""BenchPlan and BenchCase: which variants are measured on which models, batch sizes and device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from benchmarks.models import BenchModel
from benchmarks.targets import BenchTarget, Variant, select_supported
from driftlaw.hardware import environment


@dataclass(frozen=True, kw_only=True)
class BenchPlan:
    """Variants × models × batch sizes on one device.

    Attributes:
        models: models to measure on.
        batch_sizes: images per batch.
        variants: variants to measure; unsupported ones are listed in the record.
        device: device to measure on.
        seed: seed of images, augmentation and random weights.
        deterministic: use the cuDNN kernels of ``driftlaw run`` instead of the fastest.
        pool: real images; random images if None.
    """

    models: Sequence[BenchModel] = ()
    batch_sizes: Sequence[int] = ()
    variants: Sequence[Variant]
    device: torch.device
    seed: int = 0
    deterministic: bool = False
    pool: Tensor | None = None

    @property
    def supported(self) -> list[Variant]:
        """Variants that can be measured on the device."""
        return self._selection[0]

    @property
    def skipped(self) -> list[dict[str, str]]:
        """Label of each other variant, and why it is skipped."""
        return self._selection[1]

    @cached_property
    def _selection(self) -> tuple[list[Variant], list[dict[str, str]]]:
        return select_supported(self.variants, self.device)

    def cases(self) -> Iterator[BenchCase]:
        """Iterate over the models, and over the batch sizes of each."""
        return (BenchCase(self, model, batch_size) for model in self.models for batch_size in self.batch_sizes)

    def record(self, bench: str, protocol: dict[str, Any], **results: Any) -> dict[str, Any]:
        """Return the record of a benchmark: its name, how it was measured, results, software and device."""
        return {
            "bench": bench,
            "seed": self.seed,
            **protocol,
            "left_out": self.skipped,
            **results,
            **environment(self.device),
        }


@dataclass(frozen=True)
class BenchCase:
    """One model and batch size of a plan; all variants of a case are measured together."""

    plan: BenchPlan
    model: BenchModel
    batch_size: int

    def target(self, variant: Variant) -> BenchTarget:
        """Return a variant created for this case, before warm-up."""
        plan = self.plan
        return BenchTarget(variant, self.model, self.batch_size, device=plan.device, seed=plan.seed, pool=plan.pool)

    def info(self) -> dict[str, Any]:
        """Return the description for a row of a record."""
        return {**self.model.info(), "batch_size": self.batch_size}
