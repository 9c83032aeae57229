"""``reliability serve-hostile``: sends requests to a server that it must refuse, and clean ones in between."""

from __future__ import annotations

import io
import json
import math
import random
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks import options
from benchmarks.reliability.serving import MODEL_PATH, ServerProcess, embedded_images, running_server

TOKEN, ADMIN_TOKEN = "token-of-clients", "token-of-administrators"
LARGE = 100 * 2**20  # bytes of large bodies
TIMEOUT = 60.0


def serve_hostile(
    requests: Annotated[int, typer.Option(min=1, help="Number of hostile requests.")] = 100_000,
    clean_every: Annotated[int, typer.Option(min=1, help="Hostile requests between two clean ones.")] = 100,
    clean_images: Annotated[int, typer.Option(min=1, help="Images of a clean request.")] = 8,
    large: Annotated[int, typer.Option(min=0, help="How many of the requests have bodies of 100 MB.")] = 20,
    threads: Annotated[int, typer.Option(min=1, help="Connections at the same time.")] = 4,
    method: Annotated[str, typer.Option(help="Method of the server.")] = "tent",
    seed: Annotated[int, typer.Option(help="Seed of the requests.")] = 0,
    out: options.Out = None,
    as_json: options.AsJson = False,
) -> None:
    """Send hostile requests to `driftlaw serve`: wrong shapes and types, damaged files, bombs, large bodies, …

    No request may be answered with 200 or 500 or above (but 503 and 504), or without an answer. After every
    100 hostile requests a clean one must get the prediction that an adapter makes which has received clean images only.

    Example: python -m benchmarks reliability serve-hostile --out results/bench/reliability-serve-hostile.json
    """
    import torch

    from driftlaw.hardware import environment

    def measure(on_progress: options.ProgressCallback) -> dict[str, Any]:
        rows, summary = attack_server(requests, clean_every, clean_images, large, threads, method, seed, on_progress)
        record = {"bench": "reliability-serve-hostile", "seed": seed, "method": method, **summary, "rows": rows}
        return record | environment(torch.device("cpu"))

    options.report_result(measure, -(-requests // clean_every), out, as_json)


def attack_server(
    requests: int,
    clean_every: int,
    clean_images: int,
    large: int,
    threads: int,
    method: str,
    seed: int,
    on_progress: Callable[[str], None],
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Send the requests and return one row per kind, and a summary."""
    import driftlaw

    generator, makers = random.Random(seed), kinds()
    adapter = driftlaw.adapt(driftlaw.load_model("wrn_16_1-cifar10"), method, guard=True)
    counts: dict[str, Counter[str]] = {name: Counter() for name in makers}
    examples: list[dict[str, str]] = []
    clean = embedded_images(-(-requests // clean_every) * clean_images)
    wrong = sent = 0
    with tempfile.TemporaryDirectory(prefix="driftlaw-hostile-") as folder:
        log = Path(folder) / "messages"
        arguments = ["serve", "--port", "0", "--method", method, "--device", "cpu", "--log", f"{folder}/log.jsonl"]
        tokens = {"DRIFTLAW_TOKEN": TOKEN, "DRIFTLAW_ADMIN_TOKEN": ADMIN_TOKEN}
        with running_server(arguments, log, environment=tokens) as server:
            memory, started = [server.memory()], time.monotonic()
            while sent < requests:
                names = generator.choices(
                    list(makers), weights=[kind.weight for kind in makers.values()], k=clean_every
                )
                names = names[: requests - sent]
                if large and sent // clean_every % max(1, requests // clean_every // large) == 0:
                    names[0] = "100 MB body"
                batch = [(name, makers[name].make(generator)) for name in names]
                for name, outcome, data in send_all(server, batch, threads):
                    counts[name][outcome] += 1
                    if is_failure(outcome) and len(examples) < 20:
                        examples.append({"kind": name, "outcome": outcome, "request": repr(data[:300])})
                images = clean[sent // clean_every * clean_images :][:clean_images]
                wrong += not same_prediction(server.port, images, adapter)
                sent += len(names)
                memory.append(server.memory())
                on_progress(f"{sent} requests, {server.memory()} MiB")
            crashed = server.process.poll() is not None
            seconds = time.monotonic() - started
    rows = [
        {"kind": name, "requests": sum(found.values()), "failures": failures(found), "outcomes": dict(found)}
        for name, found in counts.items()
    ]
    summary = {
        "requests": sent,
        "clean": len(memory) - 1,
        "wrong_clean": wrong,
        "failures": sum(row["failures"] for row in rows),
        "crashed": crashed,
        "seconds": round(seconds, 1),
        "memory_mib": {"start": memory[0], "tenth": memory[len(memory) // 10], "end": memory[-1], "peak": max(memory)},
        "examples": examples,
    }
    return rows, summary


def is_failure(outcome: str) -> bool:
    """Return True if a hostile request was accepted, failed in the server, or was not answered."""
    return not outcome.startswith("4") and outcome not in ("503", "504")


def failures(found: Counter[str]) -> int:
    """Return the number of failures in counts of outcomes."""
    return sum(count for outcome, count in found.items() if is_failure(outcome))


def same_prediction(port: int, images: Any, adapter: Any) -> bool:
    """Send clean images and compare the answer with that of an adapter, which receives them as well."""
    import torch

    from driftlaw.serving.client import Client

    found = Client(f"http://127.0.0.1:{port}", token=TOKEN).predict(images)
    logits = adapter(torch.from_numpy(images))
    confidences = logits.double().softmax(1).amax(1)
    same = [row["class"] for row in found] == logits.argmax(1).tolist()
    return same and all(
        abs(row["confidence"] - float(value)) < 1e-5 for row, value in zip(found, confidences, strict=True)
    )


def send_all(server: ServerProcess, batch: list[tuple[str, list[bytes]]], threads: int) -> list[tuple[str, str, bytes]]:
    """Send requests from several threads and return kind, outcome and first bytes of each."""
    results, position, lock = [], iter(batch), threading.Lock()

    def work() -> None:
        while True:
            with lock:
                item = next(position, None)
            if item is None:
                return
            outcome = send(server.port, item[1])
            with lock:
                results.append((item[0], outcome, item[1][0]))

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return results


def send(port: int, parts: list[bytes]) -> str:
    """Send raw bytes over a new connection and return the status of the answer, or why there is none."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT) as connection:
            try:
                for part in parts:
                    connection.sendall(part)
            except (BrokenPipeError, ConnectionResetError):
                pass  # the server has answered already
            answer = b""
            while b"\r\n" not in answer and (received := connection.recv(4096)):
                answer += received
    except TimeoutError:
        return "no answer"
    except ConnectionError as error:
        return type(error).__name__
    line = answer.partition(b"\r\n")[0].decode("latin-1").split(" ")
    return line[1] if len(line) > 1 else "closed"


class Kind:
    """A kind of hostile request: how to make one, and how frequent it is."""

    def __init__(self, make: Callable[[random.Random], list[bytes]], weight: float = 1.0) -> None:
        self.make, self.weight = make, weight


def http(
    body: bytes = b"", kind: str = "application/json", path: str = "/v1/predict", token: str = TOKEN, **headers: str
) -> list[bytes]:
    """Return a request as bytes."""
    fields = {"Host": "127.0.0.1", "Content-Type": kind, "Authorization": f"Bearer {token}", "Connection": "close"}
    fields |= {"Content-Length": str(len(body))} | {name.replace("_", "-"): value for name, value in headers.items()}
    head = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
    return ["\r\n".join(head).encode("utf-8", "surrogateescape") + body]


def random_json(generator: random.Random, depth: int = 0) -> Any:
    """Return a random JSON value."""
    choice = generator.randrange(8 if depth < 4 else 5)
    if choice == 0:
        return generator.choice([None, True, False, "", "images", "\u0000", "\ud83d\ude00", "NaN"])
    if choice in (1, 2):
        return generator.choice([0, -1, 1, 256, 10**20, -(2**63), 1e308, 0.5, -0.0])
    if choice in (3, 4):
        return generator.random() * generator.choice([1, 255, -3])
    if choice < 7:
        return [random_json(generator, depth + 1) for _ in range(generator.randrange(5))]
    keys = generator.choices(["images", "dtype", "inputs", "name", "shape", "data", "a"], k=generator.randrange(4))
    return {key: random_json(generator, depth + 1) for key in keys}


def image_file(generator: random.Random, form: str) -> bytes:
    """Return a random image file."""
    import numpy as np
    from PIL import Image

    pixels = np.frombuffer(generator.randbytes(32 * 32 * 3), np.uint8).reshape(32, 32, 3)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format=form)
    return file.getvalue()


def kinds() -> dict[str, Kind]:
    """Return all kinds of hostile requests by name."""
    from PIL import Image

    bomb = io.BytesIO()
    Image.new("L", (30_000, 30_000)).save(bomb, format="PNG")

    def shapes(generator: random.Random) -> list[bytes]:
        shape = [generator.choice([0, 1, 2, 3, 4, 8, 31, 32, 33]) for _ in range(generator.randrange(6))]
        while math.prod(shape) > 20_000:
            shape = shape[1:]
        value: Any = generator.random()
        for size in reversed(shape):
            value = [value] * size
        if shape[-3:] == [3, 32, 32]:
            value = [value, 1]
        text = json.dumps({"images": value, "dtype": generator.choice(["float32", "uint8", "float64", 3])})
        return http(text.encode())

    def damaged_json(generator: random.Random) -> list[bytes]:
        text = json.dumps({"images": [[[0.5] * 32] * 32] * 3}).encode()
        return http(text[: generator.randrange(len(text))])

    def values(generator: random.Random) -> list[bytes]:
        bad = generator.choice([2.0, -0.5, 1e30, float("nan"), float("inf"), None, "1", True])
        return http(json.dumps({"images": [[[bad] * 32] * 32] * 3}).encode())

    def truncated(generator: random.Random) -> list[bytes]:
        form = generator.choice(["PNG", "JPEG"])
        data = image_file(generator, form)
        return http(data[: generator.randrange(len(data) - 64)], kind=f"image/{form.lower()}")

    def damaged_png(generator: random.Random) -> list[bytes]:
        data = bytearray(image_file(generator, "PNG"))
        for position in generator.sample(range(8, len(data) - 12), 8):
            data[position] ^= 1 + generator.randrange(255)
        return http(bytes(data), kind="image/png")

    def forms(generator: random.Random) -> list[bytes]:
        body = generator.choice(
            [
                generator.randbytes(200),
                b"--b\r\n\r\n",
                b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\nx\r\n--b--\r\n',
                b'--b\r\nContent-Disposition: form-data; name="a"; filename="../../a"\r\n\r\nx\r\n--b--\r\n',
                b'--b\r\nContent-Disposition: form-data; name="a"; filename="a"\r\n\r\nx\r\n' * 300 + b"--b--\r\n",
                b"--b\r\n" + b"X: " + b"y" * 5000 + b"\r\n\r\nx\r\n--b--\r\n",
            ]
        )
        return http(body, kind=generator.choice(["multipart/form-data; boundary=b", "multipart/form-data"]))

    def tokens(generator: random.Random) -> list[bytes]:
        wrong = generator.choice(["", "x", TOKEN[:-1], TOKEN + "a", "é", "a" * 4000])
        body = json.dumps({"images": [[[0.5] * 32] * 32] * 3}).encode()
        path = generator.choice(["/v1/predict", "/v1/reset", "/v1/pause", MODEL_PATH])
        return http(body, path=path, token=TOKEN if path in ("/v1/reset", "/v1/pause") else wrong)

    def paths(generator: random.Random) -> list[bytes]:
        parts = ["..", "%2e%2e", "etc", "passwd", "v1", "v2", "models", "predict", "%00", "//", "~", "é", "a" * 3000]
        path = "/" + "/".join(generator.choices(parts, k=generator.randrange(1, 7)))
        return http(path=path if path not in ("/v1/predict", "/v2") else "/v3")

    def protocol(generator: random.Random) -> list[bytes]:
        shape = generator.choice(
            [[1, 3, 32, 32], [-1, -3, 32, 32], [2**40, 3, 32, 32], [], [3, 32], random_json(generator)]
        )
        tensor = {
            "name": generator.choice(["images", "x"]),
            "datatype": generator.choice(["FP32", "UINT8", "BYTES", 1]),
        }
        tensor |= {"shape": shape, "data": generator.choice([None, [1], [0.5] * 100, random_json(generator)])}
        length = generator.choice(["", "-1", "5", "999999999", "x"])
        more = {"Inference_Header_Content_Length": length} if length else {}
        return http(json.dumps({"inputs": [tensor]}).encode() + generator.randbytes(7), path=MODEL_PATH, **more)

    def garbage(generator: random.Random) -> list[bytes]:
        line = generator.choice(
            [b"", b"GET", b"POST / HTTP/9.9", b"\x16\x03\x01\x02\x00", b"POST /v1/predict HTTP/1.1"]
        )
        return [line + generator.randbytes(generator.randrange(1, 100)) + b"\r\n\r\n"]

    def large(generator: random.Random) -> list[bytes]:
        head = http(path=generator.choice(["/v1/predict", MODEL_PATH]), kind="application/json")[0]
        if generator.random() < 0.5:
            return [head.replace(b"Content-Length: 0", b"Content-Length: %d" % LARGE), *[bytes(2**20)] * 100]
        chunk = b"%x\r\n%s\r\n" % (2**20, bytes(2**20))
        return [head.replace(b"Content-Length: 0", b"Transfer-Encoding: chunked"), *[chunk] * 100, b"0\r\n\r\n"]

    return {
        "wrong shape or type": Kind(shapes),
        "random JSON": Kind(lambda generator: http(json.dumps({"images": random_json(generator)}).encode())),
        "damaged JSON": Kind(damaged_json),
        "deeply nested JSON": Kind(lambda generator: http(b"[" * generator.randrange(10_000, 500_000)), 0.2),
        "pixels out of range": Kind(values),
        "truncated PNG or JPEG": Kind(truncated),
        "damaged PNG": Kind(damaged_png),
        "decompression bomb": Kind(lambda generator: http(bomb.getvalue(), kind="image/png"), 0.05),
        "damaged form": Kind(forms),
        "wrong token": Kind(tokens),
        "path": Kind(paths),
        "damaged request of protocol v2": Kind(protocol),
        "not HTTP": Kind(garbage),
        "100 MB body": Kind(large, 0.0),
    }
