"""``reliability fuzz``: many calls of driftlaw with unusual arguments and damaged files."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import shutil
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks import options

CHUNK = 500  # examples of one target after which the next follows
MEMORY = 12 * 2**30  # bytes of address space of the worker; torch alone takes some


def fuzz(
    calls: Annotated[int, typer.Option(min=1, help="Number of calls over all targets.")] = 200_000,
    targets: Annotated[str, typer.Option(help="Comma-separated names of targets (default: all).")] = "",
    seed: Annotated[int, typer.Option(help="Seed of the arguments.")] = 0,
    minutes: Annotated[float, typer.Option(help="Time after which no further calls are made.")] = 600.0,
    chunk: Annotated[int, typer.Option(min=1, help="Examples of one target after which the next follows.")] = CHUNK,
    out: options.Out = None,
    as_json: options.AsJson = False,
) -> None:
    """Call the public functions and the command line with unusual arguments and damaged files, and count failures.

    A call may return, or raise an error of driftlaw or a usage error of the command line. A failure is any other
    exception, a crash of the process, a call without a result after 10 seconds, or a refused call that changed the
    state of its adapter. Failures that end in the same function with the same exception are counted as one.

    Example: python -m benchmarks reliability fuzz --calls 200000 --out results/bench/reliability-fuzz.json
    """
    import torch

    from benchmarks.reliability.fuzzing import TARGETS
    from driftlaw.errors import unknown_name
    from driftlaw.hardware import environment

    names = options.split_names(targets) or list(TARGETS)
    for name in names:
        if name not in TARGETS:
            raise unknown_name("target", name, list(TARGETS))

    def measure(on_progress: options.ProgressCallback) -> dict[str, Any]:
        rows = fuzz_targets(names, calls, seed, 60 * minutes, chunk, on_progress)
        totals = {key: sum(row[key] for row in rows) for key in ("calls", "refused", "distinct_failures")}
        return {"bench": "reliability-fuzz", "seed": seed, **totals, "rows": rows, **environment(torch.device("cpu"))}

    options.report_result(measure, -(-calls // chunk), out, as_json)


def fuzz_targets(
    names: list[str], calls: int, seed: int, seconds: float, chunk: int, on_progress: options.ProgressCallback
) -> list[dict[str, Any]]:
    """Make calls of all targets in another process, with the same time for each, and return one row per target."""
    counts = {"calls": 0, "refused": 0, "distinct_failures": 0, "seconds": 0.0}
    rows = {name: {"target": name, **counts, "failures": {}} for name in names}
    start, chunks = time.monotonic(), 0
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(1, mp_context=context, initializer=_limit_worker)
    while sum(row["calls"] for row in rows.values()) < calls and time.monotonic() - start < seconds:
        row, started = min(rows.values(), key=lambda row: row["seconds"]), time.monotonic()
        try:
            found = pool.submit(fuzz_chunk, row["target"], chunk, seed + chunks).result()
        except BrokenProcessPool:
            found = {"calls": 0, "refused": 0, "failures": {f"the process ended (seed {seed + chunks})": {"count": 1}}}
            pool = ProcessPoolExecutor(1, mp_context=context, initializer=_limit_worker)
        except Exception as error:  # of the target itself: the calls of the other chunks must not be lost
            found = {"calls": 0, "refused": 0, "failures": {f"the target failed: {error!r}"[:400]: {"count": 1}}}
        chunks += 1
        for key in ("calls", "refused"):
            row[key] += found[key]
        for key, failure in found["failures"].items():
            row["failures"].setdefault(key, {**failure, "count": 0})["count"] += failure["count"]
        row["distinct_failures"] = len(row["failures"])
        row["seconds"] = round(row["seconds"] + time.monotonic() - started, 2)
        on_progress(f"{row['target']}: {row['calls']} calls, {row['distinct_failures']} failures")
    pool.shutdown()
    return list(rows.values())


def fuzz_chunk(name: str, examples: int, seed: int) -> dict[str, Any]:
    """Run one target ``examples`` times, with one call or more each, and return how the calls ended."""
    import hypothesis
    from hypothesis import strategies as st

    from benchmarks.reliability.fuzzing import TARGETS, Checker

    checker = Checker()
    folder = Path(tempfile.mkdtemp(prefix="driftlaw-fuzz-"))

    def example(data: st.DataObject) -> None:
        empty(folder)  # before each example: hypothesis may stop one at any draw
        with contextlib.redirect_stderr(io.StringIO()):
            TARGETS[name](data.draw, checker, folder)

    settings = hypothesis.settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    with contextlib.suppress(hypothesis.errors.Flaky):  # a call that behaves differently later ends the chunk
        hypothesis.seed(seed)(settings(hypothesis.given(st.data())(example)))()
    shutil.rmtree(folder)
    return {"calls": checker.calls, "refused": checker.refused, "failures": checker.failures}


def empty(folder: Path) -> None:
    """Delete everything in a folder."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _limit_worker() -> None:
    """Limit the memory and the threads of this process."""
    import resource

    import torch

    os.environ["DRIFTLAW_QUIET"] = "1"
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    torch.set_num_threads(1)
