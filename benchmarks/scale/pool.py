"""``scale pool``: many streams in an AdapterPool, compared with one adapter per stream."""

from __future__ import annotations

import statistics
import tempfile
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchmarks import options

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from driftlaw import AdapterPool

IMAGES = 64  # of every corruption
VARIANTS = "tent", "tent statistics=batch", "law"
TIERS = "device", "host", "disk"


def pool(
    streams: Annotated[int, typer.Option(min=4, help="Number of streams.")] = 200,
    resident: Annotated[int, typer.Option(min=1, help="States for which there is memory on the device.")] = 20,
    idle: Annotated[int, typer.Option(min=1, help="States for which there is host memory; others are on disk.")] = 90,
    batches: Annotated[int, typer.Option(min=1, help="Batches per stream.")] = 2,
    batch_size: Annotated[int, typer.Option(min=2, help="Images per batch.")] = 32,
    device: options.Device = "cpu",
    threads: options.Threads = None,
    out: options.Out = None,
    as_json: options.AsJson = False,
) -> None:
    """Use many streams in random order in a pool, and compare predictions with those of separate adapters.

    Milliseconds per switch are by the place from which the state of a stream comes. They contain moving the state of
    the previous stream, and of streams that are moved to make room.

    Example: python -m benchmarks scale pool --threads 1 --out results/bench/scale-pool.json
    """
    import torch

    from benchmarks.reliability.data import NETWORK, read_domains
    from driftlaw.hardware import environment, pick_device

    if threads is not None:
        torch.set_num_threads(threads)
    place = pick_device(device)

    def measure(on_progress: options.ProgressCallback) -> dict[str, Any]:
        domains = [images.to(place) for images, _ in read_domains(IMAGES)]
        generator = torch.Generator().manual_seed(0)
        order = [f"stream {index}" for index in range(streams) for _ in range(batches)]
        order = [order[index] for index in torch.randperm(len(order), generator=generator)]
        calls = []
        for stream in order:
            images = domains[int(stream.split()[1]) % len(domains)]
            chosen = torch.randint(len(images), (batch_size,), generator=generator)
            calls.append((stream, images[chosen.to(place)]))
        rows = []
        for variant in VARIANTS:
            rows.append(measure_variant(variant, NETWORK, calls, resident, idle, place))
            on_progress(f"{variant}: {rows[-1]['equal_calls']} of {len(calls)} equal")
        setting = {"network": NETWORK, "streams": streams, "resident": resident, "idle": idle, "batches": batches}
        setting |= {"batch_size": batch_size, "threads": torch.get_num_threads()}
        return {"bench": "scale-pool", **setting, "rows": rows, **environment(place)}

    options.report_result(measure, len(VARIANTS), out, as_json)


def measure_variant(
    variant: str, network: str, calls: list[tuple[str, Tensor]], resident: int, idle: int, place: torch.device
) -> dict[str, Any]:
    """Return one row of the record: all calls in a pool, then those of each stream with an adapter of its own.

    Args:
        variant: a method and its settings, ``METHOD key=value``.
        network: name of the network.
        calls: stream and images of every call.
        resident: number of states for which there is memory on the device.
        idle: number of states for which there is host memory.
        place: the device.
    """
    import torch

    import driftlaw
    from driftlaw.profiling import timed

    method, *words = variant.split()
    settings: dict[str, Any] = dict(word.split("=", 1) for word in words)
    model = driftlaw.load_model(network).to(place)
    sizes: dict[str, int] = {}
    for limit in (None, 0):
        sizes |= bytes_per_stream(driftlaw.AdapterPool(model, method, memory=limit, **settings), calls)
    budget = {"device": resident * sizes["device"], "host": idle * sizes["host"]}
    seconds: dict[str, list[float]] = {"new": [], **{tier: [] for tier in TIERS}}
    peak: Counter[str] = Counter()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        limits: dict[str, Any] = {"memory": budget["device"], "host_memory": budget["host"], "folder": folder}
        pool = driftlaw.AdapterPool(model, method, **limits, **settings)
        previous = None
        for stream, images in calls:
            tier = find_tier(pool, stream)
            with timed(place) as timer, pool.using(stream):
                pass
            if stream != previous:
                seconds[tier].append(timer.seconds)
            peak |= Counter(pool.memory())
            results.append(pool(images, stream=stream).cpu())
            previous = stream
        pool.save()
        sizes["disk"] = pool.memory()["disk"] // len(pool)
    equal = 0
    for stream in dict.fromkeys(stream for stream, _ in calls):  # one after the other: two need not fit into memory
        adapter = driftlaw.adapt(model, method, **settings)
        for (name, images), logits in zip(calls, results, strict=True):
            equal += name == stream and torch.equal(adapter(images).cpu(), logits)
    return {
        "variant": variant,
        "method": method,
        "calls": len(calls),
        "equal_calls": equal,
        "adapter_bytes": sum(value.nbytes for value in [*adapter.parameters(), *adapter.buffers()]),
        "bytes_per_stream": sizes,
        "budget_bytes": budget,
        "peak_bytes": {tier: peak[tier] for tier in TIERS},
        "switch": {tier: summarize(values) for tier, values in seconds.items() if values},
    }


def bytes_per_stream(pool: AdapterPool, calls: list[tuple[str, Tensor]]) -> dict[str, int]:
    """Return the largest number of bytes of a state that is not in use, after the calls of two streams."""
    first, second = list(dict.fromkeys(stream for stream, _ in calls))[:2]
    largest: Counter[str] = Counter()
    for stream, images in calls:
        if stream in (first, second):
            pool(images, stream=stream)
            largest |= Counter(pool.memory())
    return {tier: count for tier, count in largest.items() if count}


def find_tier(pool: AdapterPool, stream: str) -> str:
    """Return where the state of a stream is: ``device``, ``host``, ``disk``, or ``new`` if it has none."""
    places: dict[str, Any] = {"device": pool._tiers[0], "host": pool._tiers[1], "disk": pool._files}
    return next((name for name, streams in places.items() if stream in streams), "new")


def summarize(seconds: list[float]) -> dict[str, float]:
    """Return number, median and 99 % quantile of times, in milliseconds."""
    ordered = sorted(seconds)
    highest = ordered[min(len(ordered) - 1, round(0.99 * len(ordered)))]
    return {"count": len(ordered), "median_ms": 1000 * statistics.median(ordered), "p99_ms": 1000 * highest}
