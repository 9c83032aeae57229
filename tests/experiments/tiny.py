"""Cells that take a moment: an untrained network of ten layers, a few embedded images, two corruptions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from driftlaw.experiments import Cell
from driftlaw.models import build_model, save_model


def tiny_weights(path: Path, classes: int = 10, seed: int = 0) -> Path:
    """Write the weights of an untrained network."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        save_model(build_model("wrn_10_1", num_classes=classes), path)
    return path


def tiny_cell(
    weights: Path | str,
    method: str = "norm",
    *,
    seed: int = 1,
    settings: Mapping[str, Any] | None = None,
    experiment: str = "",
    **stream: Any,
) -> Cell:
    """Return a cell of two batches a domain."""
    table = {"dataset": "cifar10-embedded", "corruptions": ["fog", "contrast"], "limit": 8, "batch_size": 4}
    return Cell("tiny", method, settings or {}, seed, table | stream, {"weights": str(weights)}, experiment=experiment)
