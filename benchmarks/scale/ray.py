"""``scale ray``: runs on a Ray cluster of two local nodes, compared with one process, with and without kills."""

from __future__ import annotations

import os
import random
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchmarks import options

if TYPE_CHECKING:
    from driftlaw.experiments import RunSpec
    from driftlaw.experiments.context import RunResult

METHODS = "source,norm,tent,law,lame"
STREAM = ['stream.corruptions=["fog","contrast","gaussian_noise"]', "stream.batch_size=8"]


def ray(
    seeds: Annotated[int, typer.Option(min=1, help=f"Seeds of the methods {METHODS}.")] = 12,
    limit: Annotated[int, typer.Option(min=16, help="Images per domain.")] = 32,
    kills: Annotated[int, typer.Option(min=0, help="Times that a worker process is killed.")] = 5,
    out: options.Out = None,
    as_json: options.AsJson = False,
) -> None:
    """Run a grid in one process and on a Ray cluster of two local nodes, and compare the records.

    The grid runs once undisturbed, and once with a node that is killed when half of the runs have ended. Six longer
    runs are repeated with a worker process that is ended by ``kill -9`` in the middle of a run. Records are compared
    byte by byte without timing fields.

    Example: python -m benchmarks scale ray --out results/bench/scale-ray.json
    """
    import torch

    from driftlaw.experiments import plan_run
    from driftlaw.hardware import environment

    torch.set_num_threads(1)
    specs = plan_run("embedded", methods=METHODS, seeds=f"1-{seeds}", limit=limit, assignments=STREAM)
    longer = plan_run("embedded", methods="tent,law", seeds="1-3", limit=160, assignments=STREAM)

    def measure(on_progress: options.ProgressCallback) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(prefix="driftlaw-ray-") as root:
            folder = Path(root)
            records, _ = run_grid(specs + longer, folder / "local", None)
            local = {spec.file_name: record for spec, record in zip(specs + longer, records, strict=True)}
            on_progress("one process")
            cases: list[tuple[str, str]] = [("undisturbed", ""), ("a node killed half-way", "node")]
            cases += [(f"a worker killed, {number}", "worker") for number in range(1, kills + 1)]
            rows = []
            for number, (name, target) in enumerate(cases):
                chosen = specs if target != "worker" else longer
                case = measure_case(chosen, folder / str(number), local, target, number)
                rows.append({"case": name, **case})
                on_progress(name)
        setting = {"methods": METHODS, "seeds": seeds, "limit": limit, "runs": len(specs)}
        return {
            "bench": "scale-ray",
            **setting,
            "rows": rows,
            "load_average": os.getloadavg()[0],
            **environment(torch.device("cpu")),
        }

    options.report_result(measure, 3 + kills, out, as_json)


class Log:
    """Listener that stores notes, and calls a function with itself after each step and when a run has ended."""

    def __init__(self, on_event: Callable[[Log], None] = lambda log: None) -> None:
        self.notes: list[str] = []
        self.nodes: dict[str, int] = {}
        self.ended_runs = self.last_step = 0
        self._on_event = on_event

    def started(self, spec: RunSpec, steps: int, node: str = "") -> None:
        """Count the runs of a node."""
        self.nodes[node] = self.nodes.get(node, 0) + 1

    def stepped(self, spec: RunSpec, done: int) -> None:
        """Store the number of steps."""
        self.last_step = done
        self._on_event(self)

    def ended(self, result: RunResult) -> None:
        """Count the runs that have ended."""
        self.ended_runs += 1
        self._on_event(self)

    def note(self, text: str) -> None:
        """Store a line of the log."""
        self.notes.append(text)


def run_grid(specs: list[RunSpec], out: Path, on: str | None, log: Log | None = None) -> tuple[list[Any], float]:
    """Run a grid and return its records without timing fields, and the seconds it took.

    Args:
        specs: the runs.
        out: folder for the records.
        on: Ray to use, or None for this process.
        log: receives the progress.
    """
    from benchmarks.reliability.kill import record_content
    from driftlaw.experiments import RunOptions
    from driftlaw.experiments.runners import run_all

    start = time.monotonic()
    results = run_all(specs, RunOptions(out, checkpoint_seconds=0.0 if log else 30.0), log or Log(), on=on)
    seconds = time.monotonic() - start
    return [record_content(result.record) if result.record else result.problem for result in results], seconds


def measure_case(specs: list[RunSpec], out: Path, expected: dict[str, Any], target: str, seed: int) -> dict[str, Any]:
    """Run a grid on a new cluster of two nodes with one CPU each, and return a row of the record.

    Args:
        specs: the runs.
        out: folder for the records.
        expected: records in one process, by file name.
        target: what is killed: ``node`` when half of the runs have ended, ``worker`` after a random step, or nothing.
        seed: seed of the random moment.
    """
    import ray
    from ray.cluster_utils import Cluster

    resources = {"num_cpus": 1, "object_store_memory": 2**27}
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    cluster = Cluster(initialize_head=True, head_node_args={**resources, "include_dashboard": False})
    second, generator, killed = cluster.add_node(**resources), random.Random(seed), []
    moment = len(specs) // 2 if target == "node" else generator.randrange(10, 50)  # of 60 steps

    def kill(log: Log) -> None:
        reached = log.ended_runs if target == "node" else log.last_step
        if target and not killed and reached >= moment:
            killed.append(reached)
            if target == "node":
                threading.Thread(target=cluster.remove_node, args=(second, False)).start()
            else:
                raylets = [node.all_processes["raylet"][0].process.pid for node in (cluster.head_node, second)]
                threading.Thread(target=kill_busy_worker, args=(raylets, generator)).start()

    log = Log(kill)
    try:
        ray.init(cluster.address, log_to_driver=False, logging_level="ERROR")
        records, seconds = run_grid(specs, out, "ray", log)
    finally:
        ray.shutdown()
        cluster.shutdown()
    return {
        "target": target,
        "killed_after": killed[0] if killed else None,
        "runs": len(specs),
        "finished": sum(isinstance(record, list) and record[-1].get("closing", False) for record in records),
        "equal": sum(expected[spec.file_name] == record for spec, record in zip(specs, records, strict=True)),
        "runs_started_by_node": list(log.nodes.values()),
        "seconds": round(seconds, 1),
        "retried": [note for note in log.notes if "retry" in note],
    }


def kill_busy_worker(raylets: list[int], generator: random.Random) -> None:
    """Kill a worker process that executes a run, as soon as there is one (Linux).

    Args:
        raylets: ids of the processes whose children are the workers.
        generator: chooses the worker.
    """
    workers: list[int] = []
    while not workers:
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                if parent in raylets and "ray::driftlaw" in (folder / "cmdline").read_text():
                    workers.append(int(folder.name))
            except OSError:
                continue  # it has ended
    os.kill(generator.choice(workers), signal.SIGKILL)


def ray_overhead(
    runs: Annotated[int, typer.Option(min=5, help=f"Runs of the methods {METHODS}.")] = 20,
    pairs: Annotated[int, typer.Option(min=1, help="Pairs of measurements.")] = 5,
    out: options.Out = None,
    as_json: options.AsJson = False,
) -> None:
    """Measure the time that Ray adds to a run, after it has started.

    The same runs are executed in one process and on a Ray with one CPU, alternating, after a warm-up of both.

    Example: python -m benchmarks scale ray-overhead --out results/bench/scale-ray-overhead.json
    """
    import ray
    import torch

    from driftlaw.experiments import RunContext, RunOptions, plan_run
    from driftlaw.experiments.ray_runner import RayRunner
    from driftlaw.experiments.runners import run_one
    from driftlaw.hardware import environment

    torch.set_num_threads(1)
    specs = plan_run("embedded", methods=METHODS, seeds=f"1-{-(-runs // 5)}", limit=32, assignments=STREAM)[:runs]

    def measure(on_progress: options.ProgressCallback) -> dict[str, Any]:
        ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        rows, context = [], RunContext(torch.device("cpu"))
        with tempfile.TemporaryDirectory() as root, RayRunner("ray", Log()) as runner:
            for number in range(pairs + 1):  # the first pair is the warm-up
                start = time.monotonic()
                for spec in specs:
                    run_one(context, spec, RunOptions(Path(root) / f"local {number}"), Log())
                middle = time.monotonic()
                for future in [runner.submit(spec, RunOptions(Path(root) / f"ray {number}")) for spec in specs]:
                    future.result()
                ours, theirs = middle - start, time.monotonic() - middle
                row = {"seconds_one_process": ours, "seconds_ray": theirs, "overhead": (theirs - ours) / len(specs)}
                rows += [{key: round(value, 3) for key, value in row.items()}] if number else []
                on_progress(f"pair {number}")
        ray.shutdown()
        more = {"runs": len(specs), "load_average": os.getloadavg()[0], **environment(torch.device("cpu"))}
        return {"bench": "scale-ray-overhead", "methods": METHODS, "rows": rows, **more}

    options.report_result(measure, pairs + 1, out, as_json)
