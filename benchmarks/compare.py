"""Step times of two checkouts of the repository, such as before and after a commit, interleaved in one run.

Each checkout runs in a child process of its own that waits on a pipe. In every round both run the same number of steps,
one after the other; which one goes first alternates. Slow drifts of the machine therefore affect both alike.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from benchmarks.targets import Variant, resolve_settings
from benchmarks.timing import Repetitions, clock_name, spread
from driftlaw.errors import DataError, UsageError, unknown_name
from driftlaw.hardware import environment
from driftlaw.methods import list_methods
from driftlaw.settings import parse_assignments

ROOT = Path(__file__).resolve().parent.parent
WORKER = Path(__file__).with_name("compare_worker.py")
THIS, OTHER = "this", "other"


@dataclass(frozen=True)
class Workload:
    """What both checkouts are asked to run, apart from the target.

    Attributes:
        models: names of models.
        batch_size: images per batch.
        device: where the children run.
        side: height and width of the images.
        num_classes: output classes of the models.
        seed: of weights, images and adapters.
        threads: CPU threads per child; torch's default if None.
        deterministic: use deterministic cuDNN kernels instead of the fastest.
    """

    models: Sequence[str]
    batch_size: int
    device: torch.device
    side: int = 32
    num_classes: int = 10
    seed: int = 0
    threads: int | None = None
    deterministic: bool = False


def parse_target(text: str) -> Variant:
    """Read a target: a method, then ``fast`` (the preset), ``compiled`` or ``key=value`` settings.

    >>> parse_target("law fast").preset
    'fast'
    >>> dict(parse_target("law compiled tau=0.6").settings)
    {'tau': 0.6, 'compiled': True}
    """
    method, *words = text.split() or [""]
    if method not in list_methods():
        raise unknown_name("method", method, list_methods())
    assignments = [word for word in words if "=" in word]
    flags = [word for word in words if "=" not in word]
    if other := set(flags) - {"fast", "compiled"}:
        raise UsageError(
            f"The target '{text}' contains '{min(other)}'. Expected METHOD followed by 'fast', 'compiled' or key=value."
        )
    settings = parse_assignments(assignments) | ({"compiled": True} if "compiled" in flags else {})
    return Variant(text, method, settings, preset="fast" if "fast" in flags else None)


class Checkout:
    """A child process that runs steps of one checkout. Use it as a context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        if not (self.path / "driftlaw" / "__init__.py").is_file():
            raise DataError(f"{path} is not a checkout of driftlaw: it has no driftlaw/__init__.py.")
        # -P: the folder of the worker must not come before the checkout on sys.path.
        search = os.pathsep.join(filter(None, [str(self.path), os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(WORKER)],
            cwd=self.path,
            env=os.environ | {"PYTHONPATH": search},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def request(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Send a request to the child and wait for its reply."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # the missing reply is reported below
            print(json.dumps({"do": do, **arguments}), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise DataError(f"The process of {self.path.name} ended with exit code {self._process.wait()}.")
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise DataError(f"The checkout {self.path.name} failed at '{do}': {reply['error']}")
        return reply

    def commit(self) -> str | None:
        """Return the commit of the checkout, with ``+changes`` if files differ from it; None outside of git."""

        def git(*words: str) -> str:
            command = ["git", "-C", str(self.path), *words]
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

        try:
            return git("rev-parse", "--short=9", "HEAD") + ("+changes" if git("status", "--porcelain") else "")
        except (OSError, subprocess.CalledProcessError):
            return None

    def __enter__(self) -> Checkout:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        if kind is not None:
            self._process.kill()
        self._process.wait()
        self._process.stdout.close()


def compare_checkouts(
    other: Path,
    targets: Sequence[Variant],
    workload: Workload,
    repetitions: Repetitions,
    *,
    on_progress: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Time steps of this checkout and of another one in alternating rounds.

    Args:
        other: root of the other checkout.
        targets: methods and settings; settings are resolved by this checkout, and both use the same.
        workload: models, batch size and device.
        repetitions: rounds, steps per round and warm-up steps.
        on_progress: called with a description after every round.

    Returns:
        A record: ``rows`` with one entry per model and target. ``ratio`` is the median time per step of this checkout
        divided by that of the other one; below 1 this checkout is faster.
    """
    rows = []
    with Checkout(ROOT) as this_one, Checkout(other) as other_one:
        children = {THIS: this_one, OTHER: other_one}
        start = {
            "device": str(workload.device),
            "threads": workload.threads,
            "deterministic": workload.deterministic,
        }
        checkouts = {
            name: {
                "folder": child.path.name,
                "commit": child.commit(),
                **child.request("start", checkout=str(child.path), **start),
            }
            for name, child in children.items()
        }
        for model in workload.models:
            for target in targets:
                rows.append(_compare(model, target, children, workload, repetitions, on_progress))
    return {
        "bench": "compare",
        "checkouts": checkouts,
        "seed": workload.seed,
        **repetitions.info(),
        "deterministic": workload.deterministic,
        "clock": clock_name(workload.device),
        "rows": rows,
        **environment(workload.device),
    }


def _compare(
    model: str,
    target: Variant,
    children: dict[str, Checkout],
    workload: Workload,
    repetitions: Repetitions,
    on_progress: Callable[[str], None],
) -> dict[str, Any]:
    settings = resolve_settings(target)
    cycle = int(settings.get("fisher_every", 1))  # a fair mean is over whole cycles
    settling = int(settings.get("fisher_settling", 0)) if cycle > 1 else 0
    captured = 4 * cycle if workload.device.type == "cuda" and cycle > 1 else 0
    what = {
        "model": model,
        "method": target.method,
        "settings": settings,
        "batch_size": workload.batch_size,
        "side": workload.side,
        "num_classes": workload.num_classes,
        "seed": workload.seed,
    }
    warm_up = settling + max(repetitions.warm_up, captured, 1)
    ready = {name: child.request("prepare", **what, warm_up=warm_up) for name, child in children.items()}
    steps = -(-repetitions.steps // cycle) * cycle
    times: dict[str, list[float]] = {name: [] for name in children}
    for number in range(repetitions.rounds):
        for name in sorted(children, reverse=bool(number % 2)):
            times[name].append(children[name].request("run", steps=steps)["milliseconds"])
        on_progress(f"{model}, {target.label}")
    for child in children.values():
        child.request("release")
    by_round = [mine / theirs for mine, theirs in zip(times[THIS], times[OTHER], strict=True)]
    medians = {name: spread(numbers)["median"] for name, numbers in times.items()}
    return {
        **what,
        "target": target.label,
        "same_logits": ready[THIS]["logits_sha256"] == ready[OTHER]["logits_sha256"],
        "milliseconds": {name: spread(numbers) for name, numbers in times.items()},
        "milliseconds_by_round": times,
        "ratio": medians[THIS] / medians[OTHER],
        "ratio_by_round": spread(by_round),
    }
