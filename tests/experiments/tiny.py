"""Fast runs: an untrained model of ten layers, a few embedded images, two corruptions."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from driftlaw.experiments import RunOptions, RunSpec, runners
from driftlaw.experiments.context import RunResult
from driftlaw.models import build_model, save_model


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


def report_and_wait(spec: RunSpec, options: RunOptions) -> RunResult:
    """Replace the function of a worker: with seed 1 it reports its process id as number of steps and waits forever."""
    if spec.seed == 1:
        runners._sender.send(("started", os.getpid()))
        threading.Event().wait()
    return runners._run_in_worker(spec, options)
