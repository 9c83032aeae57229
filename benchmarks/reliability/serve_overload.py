"""``reliability serve-overload``: sends ten times more requests than a server can predict, and 10,000 at once."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks import options
from benchmarks.reliability.serving import (
    MODEL_PATH,
    Connection,
    ServerProcess,
    embedded_images,
    infer_body,
    percentiles,
    running_server,
)

IMAGES = 16  # images per request of the overload
CLOSED_LOOP = 16  # requests at the same time while the capacity is measured
QUEUE = 64


def serve_overload(
    factor: Annotated[float, typer.Option(help="Requests per second, relative to what the server can predict.")] = 10.0,
    seconds: Annotated[float, typer.Option(help="Duration of the overload.")] = 60.0,
    concurrent: Annotated[int, typer.Option(min=1, help="Requests at the same time in the second part.")] = 10_000,
    method: Annotated[str, typer.Option(help="Method of the server in the first part.")] = "law",
    out: options.Out = None,
    as_json: options.AsJson = False,
) -> None:
    """Overload `driftlaw serve`, and check that each of 10,000 simultaneous requests gets its own answer.

    In the first part requests of 16 images arrive at a fixed rate. Those that the server accepts must be answered, the
    others refused quickly, and memory must not grow. In the second part every request has another image, and the
    answers must be the logits of these images. The network is not adapted there, so that they are known.

    Example: python -m benchmarks reliability serve-overload --out results/bench/reliability-serve-overload.json
    """
    import torch

    from driftlaw.hardware import environment

    def measure(on_progress: options.ProgressCallback) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(prefix="driftlaw-overload-") as folder:
            arguments = ["serve", "--port", "0", "--device", "cpu", "--log", f"{folder}/log.jsonl"]
            limits = ["--method", method, "--set", f"server.queue={QUEUE}"]
            with running_server([*arguments, *limits], Path(folder) / "messages") as server:
                row = asyncio.run(overload(server, factor, seconds, on_progress))
            limits = ["--method", "source", "--set", f"server.queue={concurrent}", "--set", "server.deadline_ms=600000"]
            with running_server([*arguments, *limits], Path(folder) / "messages") as server:
                many = asyncio.run(at_once(server, concurrent))
            on_progress(f"{concurrent} at once: {many['wrong']} wrong")
        record = {"bench": "reliability-serve-overload", "method": method, "rows": [row], "at_once": many}
        return record | environment(torch.device("cpu"))

    options.report_result(measure, 3, out, as_json)


async def overload(
    server: ServerProcess, factor: float, seconds: float, on_progress: Callable[[str], None]
) -> dict[str, Any]:
    """Measure the capacity of a server, exceed it, and return the row of the record."""
    body, headers = infer_body(embedded_images(IMAGES))
    capacity = await measure_capacity(server, body, headers, min(10.0, seconds))
    on_progress(f"capacity: {capacity:.1f} requests/s")
    memory, statuses = [server.memory()], Counter[str]()
    times: dict[str, list[float]] = {"200": [], "429": []}
    free: list[Connection] = []

    async def one() -> None:
        connection, started = free.pop() if free else Connection(server.port), time.monotonic()
        try:
            try:
                status = str((await connection.post(MODEL_PATH, body, headers))[0])
            except (ConnectionError, asyncio.IncompleteReadError):  # the server closes connections that were idle
                status = str((await connection.post(MODEL_PATH, body, headers))[0])
        except (OSError, asyncio.IncompleteReadError) as error:
            statuses[type(error).__name__] += 1
            return
        statuses[status] += 1
        times.setdefault(status, []).append(time.monotonic() - started)
        free.append(connection)

    tasks, started, late = set(), time.monotonic(), 0.0
    for number in range(int(factor * capacity * seconds)):
        due = started + number / (factor * capacity)
        late = max(late, time.monotonic() - due)
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        task = asyncio.create_task(one())
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        if number % max(1, int(factor * capacity)) == 0:
            memory.append(server.memory())
    lasted = time.monotonic() - started
    await asyncio.gather(*tasks)
    on_progress(f"overload: {dict(statuses)}")
    answered = len(times["200"])
    return {
        "capacity": round(capacity, 1),
        "sent": sum(statuses.values()),
        "sent_per_second": round(sum(statuses.values()) / lasted, 1),
        "seconds": round(lasted, 1),
        "statuses": dict(statuses),
        "answered_per_second": round(answered / lasted, 1),
        "accepted": percentiles(times["200"]) if answered else {},
        "refused": percentiles(times["429"]) | {"max_ms": round(1000 * max(times["429"]), 1)} if times["429"] else {},
        "refused_within_100_ms": round(sum(t <= 0.1 for t in times["429"]) / max(1, len(times["429"])), 5),
        "memory_mib": {"start": memory[0], "after_10_s": memory[min(10, len(memory) - 1)], "end": memory[-1]},
        "sender_late_ms": round(1000 * late, 1),
    }


async def measure_capacity(server: ServerProcess, body: bytes, headers: dict[str, str], seconds: float) -> float:
    """Return how many requests per second a server answers if there are always some waiting."""
    answered, end = 0, 0.0

    async def work() -> None:
        nonlocal answered
        connection = Connection(server.port)
        while time.monotonic() < end:
            status, _ = await connection.post(MODEL_PATH, body, headers)
            answered += status == 200
        connection.close()

    for duration in (min(3.0, seconds), seconds):  # the first one is to warm up
        answered, end, started = 0, time.monotonic() + duration, time.monotonic()
        await asyncio.gather(*(work() for _ in range(CLOSED_LOOP)))
        rate = answered / (time.monotonic() - started)
    return rate


async def at_once(server: ServerProcess, count: int) -> dict[str, Any]:
    """Send one request per image, all at the same time, and count answers that are not those of their image."""
    import numpy as np
    import torch

    import driftlaw

    images = embedded_images(count, seed=1)
    with torch.no_grad():
        model = driftlaw.load_model("wrn_16_1-cifar10")
        expected = torch.cat([model(part.float() / 255) for part in torch.from_numpy(images).split(500)]).numpy()
    connections = [Connection(server.port) for _ in range(count)]
    everyone, statuses, wrong, started = asyncio.Event(), Counter[str](), 0, time.monotonic()
    connected = 0

    async def one(index: int) -> None:
        nonlocal wrong, connected
        body, headers = infer_body(images[index : index + 1])
        await connections[index].connect()
        connected += 1
        if connected == count:
            everyone.set()
        await everyone.wait()
        try:
            status, answer = await connections[index].post(MODEL_PATH, body, headers)
        except (OSError, asyncio.IncompleteReadError) as error:
            statuses[type(error).__name__] += 1
            return
        finally:
            connections[index].close()
        statuses[str(status)] += 1
        if status == 200:
            logits = np.array(json.loads(answer)["outputs"][0]["data"])
            wrong += not np.allclose(logits, expected[index], atol=1e-3)

    await asyncio.gather(*(one(index) for index in range(count)))
    seconds = round(time.monotonic() - started, 1)
    row = {"requests": count, "statuses": dict(statuses), "wrong": wrong, "seconds": seconds}
    return row | {"memory_mib": server.memory()}
