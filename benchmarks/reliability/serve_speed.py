"""``reliability serve-speed``: throughput and latency of the server, the bare model, and a plain FastAPI handler."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks import options
from benchmarks.reliability.serving import (
    MODEL_PATH,
    Connection,
    embedded_images,
    infer_body,
    percentiles,
    running_server,
)

PLAIN = "plain FastAPI handler"
REQUESTS = 100  # different requests, so that batches have all classes, and the guard lets the adapter work
SERVERS = {
    "LAW with guard": "--method law",
    "TENT with guard": "--method tent",
    "LAW, guard off": "--method law --set step.guard=false",
    "bare model": "--method source --set step.guard=false",
}
"""Labels and options of ``driftlaw serve``."""


def serve_speed(
    concurrency: Annotated[str, typer.Option(help="Comma-separated numbers of requests at the same time.")] = "1,32",
    images: Annotated[int, typer.Option(min=1, help="Images per request.")] = 4,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; every server is measured once per round.")] = 3,
    seconds: Annotated[float, typer.Option(help="Seconds per server, concurrency and round.")] = 5.0,
    device: options.Device = "cpu",
    out: options.Out = None,
    as_json: options.AsJson = False,
) -> None:
    """Measure throughput and latency of `driftlaw serve`, with and without adaptation, and of a plain FastAPI handler.

    All servers run at the same time, and are measured in turns. The plain handler predicts every request on its own.

    Example: python -m benchmarks reliability serve-speed --out results/bench/reliability-serve-speed.json
    """
    from driftlaw.hardware import environment, load_average, pick_device

    levels = options.split_numbers("--concurrency", concurrency)
    target = pick_device(device)

    def measure(on_progress: options.ProgressCallback) -> dict[str, Any]:
        requests = [infer_body(part) for part in np.split(embedded_images(REQUESTS * images), REQUESTS)]
        found: dict[tuple[str, int], list[tuple[float, list[float]]]] = {}
        with tempfile.TemporaryDirectory(prefix="driftlaw-speed-") as folder, ExitStack() as stack:
            ports = {}
            for number, (label, more) in enumerate(SERVERS.items()):
                arguments = ["serve", "--port", "0", "--device", str(target), "--log", f"{folder}/{number}.jsonl"]
                log = Path(folder) / f"{number}.log"
                ports[label] = stack.enter_context(running_server([*arguments, *more.split()], log)).port
            plain = ["--device", str(target)]
            log, module = Path(folder) / "plain.log", "benchmarks.reliability.plain_server"
            ports[PLAIN] = stack.enter_context(running_server(plain, log, module=module)).port
            for round_number in range(rounds + 1):  # the first one is to warm up
                for label, port in ports.items():
                    for level in levels:
                        duration = seconds if round_number else min(2.0, seconds)
                        result = asyncio.run(load(port, requests, level, duration))
                        if round_number:
                            found.setdefault((label, level), []).append(result)
                    on_progress(f"round {round_number}: {label}")
        rows = [summarize(label, level, images, results) for (label, level), results in found.items()]
        record = {"bench": "reliability-serve-speed", "images_per_request": images, "rounds": rounds, "rows": rows}
        return record | {"load_average": load_average(), **environment(target)}

    options.report_result(measure, (rounds + 1) * (len(SERVERS) + 1), out, as_json)


async def load(
    port: int, requests: Sequence[tuple[bytes, dict[str, str]]], concurrency: int, seconds: float
) -> tuple[float, list[float]]:
    """Send requests one after the other over some connections; return the duration and the time of each request."""
    times: list[float] = []
    cycle, started = itertools.cycle(requests), time.monotonic()

    async def work() -> None:
        connection = Connection(port)
        while time.monotonic() < started + seconds:
            before = time.monotonic()
            status, answer = await connection.post(MODEL_PATH, *next(cycle))
            if status != 200:
                raise RuntimeError(f"The server answered with status {status}: {answer[:300]!r}")
            times.append(time.monotonic() - before)
        connection.close()

    await asyncio.gather(*(work() for _ in range(concurrency)))
    return time.monotonic() - started, times


def summarize(label: str, concurrency: int, images: int, results: list[tuple[float, list[float]]]) -> dict[str, Any]:
    """Return the row of a server: throughput over all rounds, and of each, and percentiles of all requests."""
    times = [value for _, found in results for value in found]
    return {
        "label": label,
        "concurrency": concurrency,
        "images_per_second": round(images * len(times) / sum(duration for duration, _ in results), 1),
        **percentiles(times),
        "requests": len(times),
        "rounds": [round(images * len(found) / duration, 1) for duration, found in results],
    }
