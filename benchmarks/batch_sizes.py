"""Error of methods as a function of the batch size, with their default settings, on the embedded images and model."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import torch

import driftlaw
from driftlaw.base import Stream
from driftlaw.hardware import environment, to_device
from driftlaw.methods import registered_methods
from driftlaw.settings import read_preset

PRESET = "embedded"


def measure_batch_sizes(
    sizes: Sequence[int],
    methods: Sequence[str],
    *,
    corruptions: str = "benchmark",
    statistics: str = "auto",
    limit: int | None = None,
    seed: int = 1,
    device: torch.device,
    on_progress: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Run methods on the embedded stream once per batch size and return their errors.

    Settings are the defaults of ``driftlaw.adapt(model, method)``, not those of the preset.

    Args:
        sizes: batch sizes.
        methods: names of methods.
        corruptions: ``benchmark`` (fifteen corruptions), ``held_out`` or one corruption.
        statistics: setting of the methods that have it.
        limit: maximum number of images per domain.
        seed: seed of stream and adapter.
        device: device to run on.
        on_progress: called with the error of every finished run.

    Returns:
        A record: ``rows`` with method, batch size, mean error over domains, error by domain, number of updates and
        images per second; and the protocol and device.
    """
    options = {"limit": limit} if limit else {}
    rows, stream = [], None
    for size in sizes:
        stream = driftlaw.make_stream(
            PRESET, device=device, like=stream, batch_size=size, corruptions=corruptions, seed=seed, **options
        )
        for method in methods:
            rows.append(_run(stream, method, size, statistics, seed, device))
            on_progress(f"{method}, batch {size}: {rows[-1]['error']:.2f} %")
    protocol = {"preset": PRESET, "corruptions": corruptions, "statistics": statistics, "limit": limit, "seed": seed}
    return {"bench": "batch-sizes", **protocol, "rows": rows, **environment(device)}


def _run(stream: Stream, method: str, size: int, statistics: str, seed: int, device: torch.device) -> dict[str, Any]:
    model = driftlaw.load_model(read_preset(PRESET)["model"]["weights"]).to(device)
    has_statistics = "statistics" in registered_methods()[method].Config.model_fields
    adapter = driftlaw.adapt(model, method, seed=seed, **({"statistics": statistics} if has_statistics else {}))
    errors, seconds, images = {}, 0.0, 0
    for domain, batches in groupby(stream, key=lambda batch: batch.domain.name):
        loaded = [(to_device(batch.images, device), batch.labels.to(device)) for batch in batches]
        start = time.perf_counter()
        wrong = torch.cat([adapter(batch).argmax(dim=1) != labels for batch, labels in loaded])
        errors[domain] = 100 * float(wrong.float().mean())  # waits for the device
        seconds += time.perf_counter() - start
        images += len(wrong)
    return {
        "method": method,
        "batch_size": size,
        "error": sum(errors.values()) / len(errors),
        "error_by_domain": errors,
        "updates": adapter.steps,
        "images": images,
        "images_per_second": images / seconds,
    }
