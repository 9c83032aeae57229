"""What a step costs: methods × networks × batch sizes beside a forward pass and the plain references, in one run."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from driftlaw.bench.memory import WAYS, peak_of, with_shares
from driftlaw.bench.networks import Network
from driftlaw.bench.timing import Told, clock_of, kernels, silent, spread, take_turns
from driftlaw.bench.variants import FORWARD, PLAIN_LAW, PLAIN_TENT, RATE, Contender, Variant, sort_out
from driftlaw.probes import environment


def compare_steps(
    networks: Iterable[Network],
    *,
    batch_sizes: Sequence[int],
    variants: Iterable[Variant],
    device: torch.device,
    rounds: int,
    steps: int,
    warm_up: int,
    seed: int = 0,
    deterministic: bool = False,
    memory: bool = True,
    pool: Tensor | None = None,
    told: Told = silent,
) -> dict[str, Any]:
    """Time a step of every variant on every network and batch size, in turns, and measure its peak memory alone.

    Args:
        networks: what to measure on.
        batch_sizes: images a batch.
        variants: what to measure; those that cannot be are named in the record.
        device: where.
        rounds: how many times each variant has its turn.
        steps: at least so many steps a turn.
        warm_up: steps before the first turn.
        seed: of the images and the augmentation.
        deterministic: take the kernels of ``driftlaw run`` instead of the fastest.
        memory: whether to measure peak memory too.
        pool: real images; random ones by default.
        told: is handed the label of every variant after every turn.

    Returns:
        Plain data: ``rows`` with one entry a network, batch size and variant (milliseconds a step, and how many times
        faster than the plain references), how it was measured, and where.
    """
    fit, left_out = sort_out(variants)
    rows = []
    for network in networks:
        for batch_size in batch_sizes:

            def make(variant: Variant) -> Contender:
                return Contender(variant, network, batch_size, device=device, seed=seed, pool=pool)  # noqa: B023

            with kernels(deterministic):
                taken = take_turns(
                    [make(variant) for variant in fit], rounds=rounds, steps=steps, warm_up=warm_up, told=told
                )
            gc.collect()
            cell = [
                {
                    **network.facts(),
                    "batch_size": batch_size,
                    **variant.facts(),
                    "milliseconds": spread(numbers),
                    "milliseconds_by_round": numbers,
                }
                for variant, numbers in zip(fit, taken, strict=True)
            ]
            if memory:
                for row, variant in zip(cell, fit, strict=True):
                    row |= peak_of(
                        variant, network, batch_size, device=device, seed=seed, deterministic=deterministic, pool=pool
                    )
                cell = with_shares(cell)
            rows += with_ratios(cell)
    return {
        "bench": "step",
        "seed": seed,
        "rounds": rounds,
        "steps_per_round": steps,
        "warm_up": warm_up,
        "learning_rate": RATE,
        "deterministic": deterministic,
        "images": "random" if pool is None else "real",
        "clock": clock_of(device),
        "memory_measured": WAYS[device.type] if memory else None,
        "left_out": left_out,
        "rows": rows,
        **environment(device),
    }


def with_ratios(cell: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of one network and batch size, each with how many times faster it is than the references."""
    medians = {row["method"]: row["milliseconds"]["median"] for row in cell if row["method"] in _RATIOS}
    return [
        row
        | {
            name: medians[method] / row["milliseconds"]["median"] if method in medians else None
            for method, name in _RATIOS.items()
        }
        for row in cell
    ]


_RATIOS = {
    PLAIN_LAW: "times_faster_than_plain_law",
    PLAIN_TENT: "times_faster_than_plain_tent",
    FORWARD: "times_faster_than_forward",
}
