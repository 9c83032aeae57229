"""Server processes and requests for the commands ``reliability serve-…``."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

START_SECONDS = 120


@dataclass
class ServerProcess:
    """A server in a process of its own.

    Attributes:
        process: the process.
        port: its port on 127.0.0.1.
        seconds: from the start of the process until it accepted connections.
    """

    process: subprocess.Popen[str]
    port: int
    seconds: float

    def memory(self) -> int:
        """Return the resident memory in MiB; 0 if the process has ended."""
        try:
            pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        except (OSError, IndexError):
            return 0
        return pages * os.sysconf("SC_PAGE_SIZE") // 2**20


def start_server(
    arguments: Sequence[str], log: Path, *, module: str = "driftlaw", environment: dict[str, str] | None = None
) -> ServerProcess:
    """Start ``python -m module arguments`` and wait until it prints its address.

    Args:
        arguments: such as ``["serve", "--port", "0"]``.
        log: file for its messages.
        module: the module.
        environment: more environment variables.
    """
    started = time.monotonic()
    with open(log, "w", encoding="utf-8") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))} | (environment or {}),
            stdout=file,
            stderr=file,
            text=True,
            start_new_session=True,
        )
    while time.monotonic() - started < START_SECONDS and process.poll() is None:
        if found := re.search(r"http://127\.0\.0\.1:(\d+)", log.read_text(encoding="utf-8")):
            return ServerProcess(process, int(found[1]), time.monotonic() - started)
        time.sleep(0.02)
    process.kill()
    raise RuntimeError(f"The server did not start: {log.read_text(encoding='utf-8')[-1000:]}")


@contextmanager
def running_server(arguments: Sequence[str], log: Path, **options: Any) -> Iterator[ServerProcess]:
    """Context manager around ``start_server`` that ends the server with SIGTERM, or kills it after a minute."""
    server = start_server(arguments, log, **options)
    try:
        yield server
    finally:
        server.process.terminate()
        try:
            server.process.wait(60)
        except subprocess.TimeoutExpired:
            server.process.kill()
            server.process.wait()


def embedded_images(count: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Return embedded images with noise as uint8 (count, 3, 32, 32)."""
    from driftlaw.datasets import load_dataset

    dataset, generator = load_dataset("cifar10-embedded"), np.random.default_rng(seed)
    images = dataset.images(np.arange(count) % len(dataset)).transpose(0, 3, 1, 2)
    noise = generator.normal(0, 12, images.shape)
    return np.clip(np.round(images + noise), 0, 255).astype(np.uint8)


def infer_body(images: np.ndarray[Any, Any]) -> tuple[bytes, dict[str, str]]:
    """Return a binary request of the Open Inference Protocol and its headers."""
    tensor = {"name": "images", "datatype": "UINT8", "shape": list(images.shape)}
    text = json.dumps({"inputs": [tensor | {"parameters": {"binary_data_size": images.size}}]}).encode()
    return text + images.tobytes(), {"Inference-Header-Content-Length": str(len(text))}


MODEL_PATH = "/v2/models/wrn_16_1-cifar10/infer"


class Connection:
    """A connection to a server that sends one request after the other.

    Args:
        port: port on 127.0.0.1.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open the connection, if it is not open."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self.port)
        return self._streams

    async def post(self, path: str, body: bytes, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
        """Send a request and return status and body of the answer."""
        reader, writer = await self.connect()
        lines = [f"POST {path} HTTP/1.1", f"Host: 127.0.0.1:{self.port}", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        try:
            writer.write("\r\n".join([*lines, "", ""]).encode() + body)
            await writer.drain()
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            length = int(re.search(r"(?i)content-length: (\d+)", head)[1])
            answer = await reader.readexactly(length)
        except BaseException:
            self.close()
            raise
        if "connection: close" in head.lower():
            self.close()
        return int(head.split(" ", 2)[1]), answer

    def close(self) -> None:
        """Close the connection; the next request opens it again."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """Return median and 99th percentile in milliseconds."""
    return {f"p{share}_ms": round(1000 * float(np.percentile(seconds, share)), 2) for share in (50, 99)}
