"""``reliability serve-schema``: sends requests that schemathesis generates from the OpenAPI document of the server."""

from __future__ import annotations

import io
import itertools
import random
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks import options
from benchmarks.reliability.serve_hostile import ADMIN_TOKEN, TIMEOUT, TOKEN
from benchmarks.reliability.serving import ServerProcess, embedded_images, running_server
from driftlaw.errors import UsageError

HEADERS = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
EXAMPLES = {True: 200, False: 25}  # per operation with and without a body, before the next operation
MODEL = {"model": "wrn_16_1-cifar10"}


def serve_schema(
    requests: Annotated[int, typer.Option(min=1, help="Number of generated requests.")] = 10_000,
    clean_every: Annotated[int, typer.Option(min=1, help="Generated requests between two clean ones.")] = 1,
    method: Annotated[str, typer.Option(help="Method of the server.")] = "tent",
    seed: Annotated[int, typer.Option(help="Seed of the requests.")] = 0,
    out: options.Out = None,
    as_json: options.AsJson = False,
) -> None:
    """Send requests to `driftlaw serve` that schemathesis generates from its OpenAPI document, valid and invalid ones.

    No answer may contradict the document, have status 500 or above (but 503 and 504), or be missing. A second server
    receives only what the first one accepted. Clean requests in between must get the same answer from both.

    Example: python -m benchmarks reliability serve-schema --out results/bench/reliability-serve-schema.json
    """
    import torch

    from driftlaw.hardware import environment

    def measure(on_progress: options.ProgressCallback) -> dict[str, Any]:
        record: dict[str, Any] = {"bench": "reliability-serve-schema", "seed": seed, "method": method}
        record |= send_generated(requests, clean_every, method, seed, on_progress)
        return record | environment(torch.device("cpu"))

    options.report_result(measure, requests, out, as_json)


@contextmanager
def two_servers(method: str) -> Iterator[list[ServerProcess]]:
    """Context manager that starts two equal servers with tokens."""
    tokens = {"DRIFTLAW_TOKEN": TOKEN, "DRIFTLAW_ADMIN_TOKEN": ADMIN_TOKEN}
    arguments = ["serve", "--port", "0", "--method", method, "--device", "cpu", "--set", "step.guard.snapshot_steps=1"]
    arguments.append("--log")
    with tempfile.TemporaryDirectory(prefix="driftlaw-schema-") as name:
        folder = Path(name)
        with (
            running_server([*arguments, str(folder / "1.jsonl")], folder / "1", environment=tokens) as first,
            running_server([*arguments, str(folder / "2.jsonl")], folder / "2", environment=tokens) as second,
        ):
            yield [first, second]


def send_generated(
    requests: int, clean_every: int, method: str, seed: int, on_progress: Callable[[str], None]
) -> dict[str, Any]:
    """Send the requests and return rows, one per operation, and a summary."""
    try:
        import schemathesis
    except ImportError as error:
        raise UsageError("serve-schema needs schemathesis. Install it: pip install schemathesis") from error
    from requests import Session
    from requests.exceptions import InvalidHeader, InvalidURL, RequestException
    from schemathesis.checks import load_all_checks
    from schemathesis.core.failures import FailureGroup
    from schemathesis.core.parameters import ParameterLocation
    from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

    load_all_checks()
    statuses: dict[str, Counter[str]] = defaultdict(Counter)
    failures: dict[str, Counter[str]] = defaultdict(Counter)
    examples: list[str] = []
    images, sent, accepted, clean, wrong = embedded_images(1000), 0, 0, 0, 0
    session = Session()
    session.trust_env = False  # no proxy
    # Much data that fits the document does not fit the network. Unknown query parameters are ignored.
    excluded = [positive_data_acceptance, negative_data_rejection]

    with two_servers(method) as (server, reference):
        url, other = (f"http://127.0.0.1:{one.port}" for one in (server, reference))
        memory = [server.memory()]

        def send(case: Any) -> None:
            """Send a request, check its answer, and send it to the second server if it was accepted."""
            nonlocal sent, accepted, clean, wrong
            if sent >= requests:
                return
            name = f"{case.method.upper()} {case.operation.path}"
            try:
                response = case.call(base_url=url, session=session, headers=HEADERS, timeout=TIMEOUT)
                statuses[name][str(response.status_code)] += 1
                case.validate_response(response, headers=HEADERS, excluded_checks=excluded)
            except (InvalidHeader, InvalidURL, UnicodeError):
                return  # it cannot be sent
            except RequestException as error:
                statuses[name][type(error).__name__] += 1
                failures[name][type(error).__name__] += 1
                sent += 1
                return
            except FailureGroup as group:
                titles = {failure.title for failure in group.exceptions}
                if response.status_code not in (503, 504) or titles != {"Server error"}:
                    failures[name].update(titles)
                    examples.append(f"{name}: {group.message[:1000]}")
            sent += 1
            if response.status_code == 200 and case.method.upper() == "POST":
                accepted += 1
                failures[name]["invalid body accepted"] += case.meta.is_negative_at(ParameterLocation.BODY)
                response.request.url = response.request.url.replace(url, other, 1)
                response.request.headers.pop("Driftlaw-Timeout-Ms", None)
                wrong += session.send(response.request, timeout=TIMEOUT).status_code != 200
            if sent % clean_every == 0:
                body = {"images": images[sent % len(images)].tolist(), "dtype": "uint8"}
                found = [session.post(f"{one}/v1/predict", json=body, headers=HEADERS).json() for one in (url, other)]
                wrong += found[0] != found[1] or "predictions" not in found[0]
                clean += 1
            memory.append(server.memory())
            on_progress(f"{sent} requests, {memory[-1]} MiB")

        generate(schemathesis.openapi.from_url(f"{url}/openapi.json"), send, lambda: sent < requests, seed)
        crashed = server.process.poll() is not None
    names = sorted(statuses, key=lambda name: name.split()[::-1])
    rows = [
        {
            "operation": name,
            "requests": statuses[name].total(),
            "statuses": dict(sorted(statuses[name].items())),
            "failures": dict(+failures[name]),
        }
        for name in names
    ]
    return {
        "schemathesis": schemathesis.SCHEMATHESIS_VERSION,
        "requests": sent,
        "accepted": accepted,
        "clean": clean,
        "wrong_clean": wrong,
        "failures": sum(found.total() for found in failures.values()),
        "crashed": crashed,
        "memory_mib": {"start": memory[0], "tenth": memory[sent // 10], "end": memory[-1], "peak": max(memory)},
        "examples": examples[:20],
        "rows": rows,
    }


def generate(schema: Any, send: Callable[[Any], None], more: Callable[[], bool], seed: int) -> None:
    """Call ``send`` with requests: systematic ones of every operation and method, then random ones while ``more``."""
    import hypothesis
    import schemathesis
    from hypothesis.errors import Unsatisfiable
    from schemathesis import GenerationMode

    for kind in ("png", "jpeg"):
        files = hypothesis.strategies.binary(max_size=300) | image_files(kind)
        schemathesis.openapi.media_type(f"image/{kind}", files)
    operations = [result.ok() for result in schema.get_all_operations()]
    for operation in operations:
        modes, config = list(GenerationMode), schema.config.generation
        for case in schema.iter_coverage_cases(operation, generation_modes=modes, generation_config=config):
            if more():
                send(case)
    for turn in itertools.count():
        random.Random(seed + turn).shuffle(operations)
        for operation, mode in itertools.product(operations, GenerationMode):
            if not more():
                return
            settings = hypothesis.settings(
                max_examples=EXAMPLES[bool(operation.body)],
                database=None,
                deadline=None,
                phases=[hypothesis.Phase.generate],
                suppress_health_check=list(hypothesis.HealthCheck),
            )
            path = MODEL if turn % 2 == 0 and "{model}" in operation.path else None  # else a random model
            given = hypothesis.given(operation.as_strategy(generation_mode=mode, path_parameters=path))
            with suppress(Unsatisfiable):  # nothing can be invalid in an operation without parameters
                hypothesis.seed(seed + turn)(settings(given(send)))()


def image_files(kind: str) -> Any:
    """Return a strategy of valid image files of one colour."""
    from hypothesis import strategies
    from PIL import Image

    def make(size: tuple[int, int], colour: tuple[int, int, int]) -> bytes:
        file = io.BytesIO()
        Image.new("RGB", size, colour).save(file, format=kind)
        return file.getvalue()

    side, value = strategies.integers(1, 64), strategies.integers(0, 255)
    return strategies.builds(make, strategies.tuples(side, side), strategies.tuples(value, value, value))
