"""``reliability serve-kill``: ends a server with ``kill -9`` under load, and starts it again."""

from __future__ import annotations

import json
import os
import random
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks import options
from benchmarks.reliability.serving import embedded_images, percentiles, start_server

THREADS = 4
IMAGES = 32  # images per request, enough for an update
SNAPSHOT_STEPS = 5


def serve_kill(
    kills: Annotated[int, typer.Option(min=1, help="Number of kills.")] = 20,
    seconds: Annotated[float, typer.Option(help="Longest time under load before a kill.")] = 6.0,
    method: Annotated[str, typer.Option(help="Method of the server.")] = "tent",
    seed: Annotated[int, typer.Option(help="Seed of the moments.")] = 0,
    out: options.Out = None,
    as_json: options.AsJson = False,
) -> None:
    """Kill `driftlaw serve` at random moments under load, start it again, and compare its log with the answers.

    Every restart must continue from the newest snapshot, and every answer that a client received must be in the log,
    with the same predictions.

    Example: python -m benchmarks reliability serve-kill --out results/bench/reliability-serve-kill.json
    """
    import torch

    from driftlaw.hardware import environment

    def measure(on_progress: options.ProgressCallback) -> dict[str, Any]:
        row = kill_server(kills, seconds, method, seed, on_progress)
        record = {"bench": "reliability-serve-kill", "seed": seed, "method": method, "rows": [row]}
        return record | environment(torch.device("cpu"))

    options.report_result(measure, kills, out, as_json)


def kill_server(
    kills: int, seconds: float, method: str, seed: int, on_progress: Callable[[str], None]
) -> dict[str, Any]:
    """Kill a server ``kills`` times and return the row of the record.

    Returns:
        ``not_logged``: answers that are not in the log, or differ from it. ``wrong_start``: restarts that did not
        continue from the newest snapshot. ``lost_steps``: largest number of steps after the newest snapshot.
        ``first_answer``: seconds from the start of a process to its first answer.
    """
    generator, received, first_answers = random.Random(seed), {}, []
    wrong_start = lost = 0
    with tempfile.TemporaryDirectory(prefix="driftlaw-serve-kill-") as root:
        folder = Path(root)
        arguments = [
            "serve",
            "--port",
            "0",
            "--method",
            method,
            "--device",
            "cpu",
            "--snapshots",
            str(folder / "state"),
        ]
        arguments += ["--log", str(folder / "log.jsonl"), "--set", f"step.guard.snapshot_steps={SNAPSHOT_STEPS}"]
        images, steps = embedded_images(THREADS * IMAGES), 0
        for number in range(kills + 1):
            newest = max((int(path.stem[5:]) for path in (folder / "state").glob("step-*.pt")), default=0)
            lost, began = max(lost, steps - newest), time.monotonic()
            server = start_server(arguments, folder / "messages")
            wrong_start += f"after {newest} steps" not in (folder / "messages").read_text(encoding="utf-8")
            load = Load(server.port, images, f"{number}-")
            load.start()
            first_answers.append(load.wait_for_first() - began)
            time.sleep(generator.random() * seconds)
            os.killpg(server.process.pid, signal.SIGKILL)
            server.process.wait()
            load.stop()
            received |= load.received
            log = read_log(folder / "log.jsonl")
            steps = max((line["step"] for line in log.values()), default=0)
            if number < kills:
                on_progress(f"kill {number + 1} after {steps} steps, {len(received)} answers")
        log = read_log(folder / "log.jsonl")
    differing = [name for name, predictions in received.items() if log.get(name, {}).get("predictions") != predictions]
    return {
        "kills": kills,
        "answers": len(received),
        "logged": len(log),
        "not_logged": len(differing),
        "wrong_start": wrong_start,
        "lost_steps": lost,
        "snapshot_steps": SNAPSHOT_STEPS,
        "first_answer": percentiles(first_answers) | {"max_ms": round(1000 * max(first_answers), 1)},
        "examples": differing[:5],
    }


def read_log(path: Path) -> dict[str, dict[str, Any]]:
    """Return the complete lines of a request log that are predictions, by the id of their request."""
    lines = path.read_bytes().split(b"\n")[:-1]
    found = [json.loads(line) for line in lines]
    return {line["id"]: line for line in found if line["status"] == 200 and "id" in line}


class Load:
    """Threads that send requests with ids and keep the predictions that they receive.

    Args:
        port: port of the server.
        images: (THREADS · IMAGES, 3, 32, 32).
        prefix: start of the ids.
    """

    def __init__(self, port: int, images: Any, prefix: str) -> None:
        self.port, self.images, self.prefix = port, images, prefix
        self.received: dict[str, list[int]] = {}
        self._ending, self._first = threading.Event(), threading.Event()
        self._first_at = 0.0
        self._threads = [threading.Thread(target=self._send, args=(number,)) for number in range(THREADS)]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def wait_for_first(self) -> float:
        """Wait for the first answer and return when it came."""
        if not self._first.wait(120):
            raise RuntimeError("The server did not answer.")
        return self._first_at

    def stop(self) -> None:
        """End the threads."""
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def _send(self, thread: int) -> None:
        from driftlaw.serving.client import Client, ServerError

        client, number = Client(f"http://127.0.0.1:{self.port}"), 0
        while not self._ending.is_set():
            name = f"{self.prefix}{thread}-{number}"
            client._headers["X-Request-Id"] = name
            try:
                rows = client.predict(self.images[thread * IMAGES :][:IMAGES])
            except ServerError:
                time.sleep(0.05)
                continue
            self.received[name] = [row["class"] for row in rows]
            if not self._first.is_set():
                self._first_at = time.monotonic()
                self._first.set()
            number += 1
