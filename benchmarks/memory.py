"""Peak memory of a step: every variant alone, against the plain LAW."""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence
from typing import Any

import torch

from benchmarks.cases import Cell, Plan
from benchmarks.timing import Told, kernels, silent
from benchmarks.variants import PLAIN_LAW, Contender, Variant

STEPS = 6  # the first ones make optimizers' state and run as written, later ones may be captured as a graph
WAYS = {
    "cuda": "most bytes of live tensors in torch's caching allocator from the first step to the last, capture "
    "included, less what was held before the variant was made; its own network, state and "
    "gradients are in it, images are not",
    "cpu": "bytes of torch's CPU allocator, oneDNN's included, as torch.profiler saw them allocated and freed: what "
    "the variant holds between steps plus the highest point of a step, its passes one after the other; images are not "
    "in it",
}


def compare_memory(plan: Plan, *, told: Told = silent) -> dict[str, Any]:
    """Measure the peak memory of a step of every variant, each alone, on every network and batch size.

    Args:
        plan: what to measure, on what and where.
        told: is handed the label of every variant that is done.

    Returns:
        Plain data: ``rows`` with one entry a network, batch size and variant, how it was measured, and where.
    """
    rows = []
    for cell in plan.cells():
        found = []
        for variant in plan.fit:
            found.append({**cell.facts(), **variant.facts(), **peak_of(cell, variant)})
            told(variant.label)
        rows += with_shares(found)
    how = {"deterministic": plan.deterministic, "measured": WAYS[plan.device.type]}
    return plan.record("memory", how, rows=rows)


def with_shares(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of one network and batch size, each with its peak as a share of the plain LAW's."""
    plain = next((row["peak_bytes"] for row in rows if row["method"] == PLAIN_LAW), None)
    return [row | {"share_of_plain_law": row["peak_bytes"] / plain if plain else None} for row in rows]


def peak_of(cell: Cell, variant: Variant) -> dict[str, int]:
    """Return ``peak_bytes`` of a step of one variant, ``held_bytes`` between steps, and ``reserved_bytes`` on a GPU."""
    device = cell.plan.device

    def make() -> Contender:
        return cell.contender(variant)

    with kernels(cell.plan.deterministic):
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
