"""What is measured, on what and where: what every benchmark of a step is handed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from benchmarks.models import Network
from benchmarks.variants import Contender, Variant, sort_out
from driftlaw.hardware import environment


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Variants × networks × batch sizes, and the place where they are measured.

    Attributes:
        networks: what to measure on.
        batch_sizes: images a batch.
        variants: what to measure; those that cannot be are named in the record.
        device: where.
        seed: of images and augmentation, and of networks that a benchmark makes itself.
        deterministic: take the kernels of ``driftlaw run`` instead of the fastest.
        pool: real images; random ones by default.
    """

    networks: Sequence[Network] = ()
    batch_sizes: Sequence[int] = ()
    variants: Sequence[Variant]
    device: torch.device
    seed: int = 0
    deterministic: bool = False
    pool: Tensor | None = None

    @property
    def fit(self) -> list[Variant]:
        """The variants that can be measured here."""
        return self._sorted[0]

    @property
    def left_out(self) -> list[dict[str, str]]:
        """The label of each of the others, and why not."""
        return self._sorted[1]

    @cached_property
    def _sorted(self) -> tuple[list[Variant], list[dict[str, str]]]:
        return sort_out(self.variants, self.device)

    def cells(self) -> Iterator[Cell]:
        """Walk over the networks, and over the batch sizes of each."""
        return (Cell(self, network, batch_size) for network in self.networks for batch_size in self.batch_sizes)

    def record(self, bench: str, how: dict[str, Any], **found: Any) -> dict[str, Any]:
        """Return a benchmark's record, plain data: its name, how it was measured, what was found, and where."""
        return {
            "bench": bench,
            "seed": self.seed,
            **how,
            "left_out": self.left_out,
            **found,
            **environment(self.device),
        }


@dataclass(frozen=True)
class Cell:
    """One network and batch size of a plan: where all its variants are measured beside each other."""

    plan: Plan
    network: Network
    batch_size: int

    def contender(self, variant: Variant) -> Contender:
        """Return a variant made for this cell, cold."""
        plan = self.plan
        return Contender(variant, self.network, self.batch_size, device=plan.device, seed=plan.seed, pool=plan.pool)

    def facts(self) -> dict[str, Any]:
        """Return what a row of a record says of the cell, as plain data."""
        return {**self.network.facts(), "batch_size": self.batch_size}
