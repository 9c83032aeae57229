"""Peak memory of a step: every variant alone, against the plain LAW."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from driftlaw.bench.networks import Network
from driftlaw.bench.timing import Told, kernels, silent
from driftlaw.bench.variants import PLAIN_LAW, Contender, Variant, sort_out
from driftlaw.probes import environment

STEPS = 6  # the first ones make optimizers' state and run as written, later ones may be captured as a graph
WAYS = {
    "cuda": "most bytes of live tensors in torch's caching allocator from the first step to the last, capture "
    "included, less what was held before the variant was made; its own network, state and "
    "gradients are in it, images are not",
    "cpu": "bytes of torch's CPU allocator, oneDNN's included, as torch.profiler saw them allocated and freed: what "
    "the variant holds between steps plus the highest point of a step, its passes one after the other; images are not "
    "in it",
}


def compare_memory(
    networks: Iterable[Network],
    *,
    batch_sizes: Sequence[int],
    variants: Iterable[Variant],
    device: torch.device,
    seed: int = 0,
    deterministic: bool = False,
    pool: Tensor | None = None,
    told: Told = silent,
) -> dict[str, Any]:
    """Measure the peak memory of a step of every variant, each alone, on every network and batch size.

    Args:
        networks: what to measure on.
        batch_sizes: images a batch.
        variants: what to measure; those that cannot be are named in the record.
        device: where.
        seed: of the images.
        deterministic: take the kernels of ``driftlaw run`` instead of the fastest.
        pool: real images; random ones by default.
        told: is handed the label of every variant that is done.

    Returns:
        Plain data: ``rows`` with one entry a network, batch size and variant, how it was measured, and where.
    """
    fit, left_out = sort_out(variants)
    rows = []
    for network in networks:
        for batch_size in batch_sizes:
            cell = []
            for variant in fit:
                found = peak_of(
                    variant, network, batch_size, device=device, seed=seed, deterministic=deterministic, pool=pool
                )
                cell.append({**network.facts(), "batch_size": batch_size, **variant.facts(), **found})
                told(variant.label)
            rows += with_shares(cell)
    return {
        "bench": "memory",
        "seed": seed,
        "deterministic": deterministic,
        "measured": WAYS[device.type],
        "left_out": left_out,
        "rows": rows,
        **environment(device),
    }


def with_shares(cell: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of one network and batch size, each with its peak as a share of the plain LAW's."""
    plain = next((row["peak_bytes"] for row in cell if row["method"] == PLAIN_LAW), None)
    return [row | {"share_of_plain_law": row["peak_bytes"] / plain if plain else None} for row in cell]


def peak_of(
    variant: Variant,
    network: Network,
    batch_size: int,
    *,
    device: torch.device,
    seed: int = 0,
    deterministic: bool = False,
    pool: Tensor | None = None,
) -> dict[str, int]:
    """Return ``peak_bytes`` of a step of one variant, ``held_bytes`` between steps, and ``reserved_bytes`` on a GPU."""

    def make() -> Contender:
        return Contender(variant, network, batch_size, device=device, seed=seed, pool=pool)

    with kernels(deterministic):
        found = _on_gpu(make, device) if device.type == "cuda" else _on_cpu(make)
    gc.collect()
    return found


def _on_gpu(make: Any, device: torch.device) -> dict[str, int]:
    make().run(1)  # cuDNN tries kernels with large workspaces the first time it sees a shape, and never again
    _forget(device)
    before, reserved_before = torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device)
    contender = make()
    images = sum(batch.numel() * batch.element_size() for batch in contender.batches)
    torch.cuda.reset_peak_memory_stats(device)
    contender.warm_up(STEPS)
    torch.cuda.synchronize(device)
    found = {
        "peak_bytes": torch.cuda.max_memory_allocated(device) - before - images,
        "held_bytes": torch.cuda.memory_allocated(device) - before - images,
        "reserved_bytes": torch.cuda.max_memory_reserved(device) - reserved_before,
    }
    del contender
    _forget(device)
    return found


def _forget(device: torch.device) -> None:
    gc.collect()
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()


def _on_cpu(make: Any) -> dict[str, int]:
    contender = None

    def begin() -> None:
        nonlocal contender
        contender = make()
        contender.warm_up(STEPS)
        gc.collect()  # of what it was made of, such as the network that an adapter has copied

    held, _ = allocated_by(begin)
    assert contender is not None
    images = sum(batch.numel() * batch.element_size() for batch in contender.batches)
    _, highest = allocated_by(lambda: contender.run(contender.cycle))
    return {"peak_bytes": held - images + highest, "held_bytes": held - images}


def allocated_by(work: Any) -> tuple[int, int]:
    """Run ``work`` and return the bytes of CPU memory that it left allocated and the highest point on the way."""
    from torch.profiler import ProfilerActivity, profile

    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it would write when it starts and stops on everybody's stderr
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        work()
    events = [event for event in seen.profiler.kineto_results.events() if event.name() == "[memory]"]
    total = highest = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        total += event.nbytes()
        highest = max(highest, total)
    return total, highest
