"""Peak memory of a step: every variant alone, compared with naive LAW."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

from benchmarks.cases import BenchCase, BenchPlan
from benchmarks.targets import NAIVE_LAW, BenchTarget, Variant
from benchmarks.timing import ProgressCallback, cudnn_kernels, no_progress

STEPS = 6  # the first steps create optimizer state and run eagerly, later ones may be captured in a CUDA graph
MEMORY_PROTOCOLS = {
    "cuda": "Maximum bytes of live tensors in torch's caching allocator over all steps, including graph capture, minus "
    "the bytes allocated before the variant was created. The variant's model, state and gradients are included, images "
    "are not.",
    "cpu": "Bytes in torch's CPU allocator, including oneDNN, as recorded by torch.profiler: bytes "
    "held between steps plus the peak within a step, with its passes run sequentially. Images are not included.",
}


def measure_memory(plan: BenchPlan, *, on_progress: ProgressCallback = no_progress) -> dict[str, Any]:
    """Measure the peak memory of a step of every variant, each alone, on every model and batch size.

    Args:
        plan: variants, models, batch sizes and device.
        on_progress: called with the label of every finished variant.

    Returns:
        A record: ``rows`` with one entry per model, batch size and variant, how it was measured, and the device.
    """
    rows = []
    for case in plan.cases():
        measured = []
        for variant in plan.supported:
            measured.append({**case.info(), **variant.info(), **measure_peak(case, variant)})
            on_progress(variant.label)
        rows += with_shares(measured)
    protocol = {"deterministic": plan.deterministic, "measured": MEMORY_PROTOCOLS[plan.device.type]}
    return plan.record("memory", protocol, rows=rows)


def with_shares(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of one model and batch size, each with its peak as a fraction of naive LAW's."""
    naive = next((row["peak_bytes"] for row in rows if row["method"] == NAIVE_LAW), None)
    return [row | {"share_of_plain_law": row["peak_bytes"] / naive if naive else None} for row in rows]


def measure_peak(case: BenchCase, variant: Variant) -> dict[str, int]:
    """Return ``peak_bytes`` of a step of a variant, ``held_bytes`` between steps, and ``reserved_bytes`` on a GPU."""
    device = case.plan.device

    def make_target() -> BenchTarget:
        return case.target(variant)

    with cudnn_kernels(case.plan.deterministic):
        result = _peak_on_gpu(make_target, device) if device.type == "cuda" else _peak_on_cpu(make_target)
    gc.collect()
    return result


def _peak_on_gpu(make_target: Callable[[], BenchTarget], device: torch.device) -> dict[str, int]:
    make_target().run(1)  # cuDNN tries kernels with large workspaces the first time it sees a shape
    _free_memory(device)
    before, reserved_before = torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device)
    target = make_target()
    images = sum(batch.numel() * batch.element_size() for batch in target.batches)
    torch.cuda.reset_peak_memory_stats(device)
    target.warm_up(STEPS)
    torch.cuda.synchronize(device)
    result = {
        "peak_bytes": torch.cuda.max_memory_allocated(device) - before - images,
        "held_bytes": torch.cuda.memory_allocated(device) - before - images,
        "reserved_bytes": torch.cuda.max_memory_reserved(device) - reserved_before,
    }
    del target
    _free_memory(device)
    return result


def _free_memory(device: torch.device) -> None:
    gc.collect()
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()


def _peak_on_cpu(make_target: Callable[[], BenchTarget]) -> dict[str, int]:
    targets = []

    def create() -> None:
        targets.append(make_target())
        targets[0].warm_up(1)  # creates optimizer state
        gc.collect()  # temporary objects of the construction, such as the model that an adapter has copied

    held, _ = allocated_bytes(create)
    target = targets[0]
    images = sum(batch.numel() * batch.element_size() for batch in target.batches)
    _, peak = allocated_bytes(lambda: target.run(target.cycle))
    return {"peak_bytes": held - images + peak, "held_bytes": held - images}


def allocated_bytes(work: Callable[[], Any]) -> tuple[int, int]:
    """Run ``work`` and return the bytes of CPU memory still allocated afterwards, and the peak on the way."""
    from torch.profiler import ProfilerActivity, profile

    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # otherwise the profiler writes to stderr
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as trace:
        work()
    events = [event for event in trace.profiler.kineto_results.events() if event.name() == "[memory]"]
    total = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        total += event.nbytes()
        peak = max(peak, total)
    return total, peak
