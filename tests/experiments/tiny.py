"""Fast runs: an untrained model of ten layers, a few embedded images, two corruptions."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from driftlaw.experiments import RunContext, RunOptions, RunSpec, runners
from driftlaw.experiments.context import ProgressListener
from driftlaw.models import build_model, save_model
from driftlaw.records import RunRecord


def tiny_weights(path: Path, classes: int = 10, seed: int = 0) -> Path:
    """Write the weights of an untrained model."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        save_model(build_model("wrn_10_1", num_classes=classes), path)
    return path


def tiny_spec(
    weights: Path | str,
    method: str = "norm",
    *,
    seed: int = 1,
    settings: Mapping[str, Any] | None = None,
    experiment: str = "",
    **stream: Any,
) -> RunSpec:
    """Return a run with two batches per domain."""
    table = {"dataset": "cifar10-embedded", "corruptions": ["fog", "contrast"], "limit": 8, "batch_size": 4}
    return RunSpec(
        "tiny", method, settings or {}, seed, table | stream, {"weights": str(weights)}, experiment=experiment
    )


def report_and_wait(connection: Connection, cpu_threads: int) -> None:
    """Replace the main function of a worker: a run with seed 1 reports the process id as steps and waits forever."""
    run = RunContext.run

    def wait(self: RunContext, spec: RunSpec, options: RunOptions, listener: ProgressListener) -> RunRecord:
        if spec.seed == 1:
            listener.started(spec, os.getpid())
            threading.Event().wait()
        return run(self, spec, options, listener)

    RunContext.run = wait
    runners._work(connection, cpu_threads)
