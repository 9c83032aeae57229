"""What two ranks do in the tests: ``python two_ranks.py RANK FOLDER``. Results are written to the folder."""

from __future__ import annotations

import copy
import os
import pickle
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import driftlaw
from driftlaw.base import BatchStatsSettings, find_method
from driftlaw.errors import RankError, UsageError
from driftlaw.methods import list_methods
from driftlaw.testing.fixtures import CLASSES, SyntheticDataset, make_images

SIZES = [8, 8, 7, 8, 1, 8, 3, 8, 8, 8] * 2
"""Images of all ranks in each batch. Rank 1 has one image less if the number is odd, and none of a single image."""
FAST: dict[str, dict[str, Any]] = {
    "adacontrast": {"memory_size": 64},
    "cotta": {"augmentations": 2},
    "rotta": {"memory_size": 16, "update_every": 16},
}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{method: (method, FAST.get(method, {})) for method in list_methods()},
    "per-sample Fisher": ("law", {"fisher": "per_sample"}),
    "mixed statistics, recompute": ("law", {"statistics": "mixed", "recompute": True}),
    "adaptive statistics": ("law", {"statistics": "adaptive"}),
    "window": ("tent", {"statistics": "window", "window": 12}),
    "small batches": ("tent", {"statistics": "auto", "window": 16}),
    "guard": ("law", {"guard": True}),
}


def make_network() -> nn.Module:
    """Return a small network in float64 with the same weights every time; about half of its logits are confident."""
    torch.manual_seed(0)
    first = nn.Sequential(nn.Conv2d(3, 6, 3, stride=2, bias=False), nn.BatchNorm2d(6), nn.ReLU())
    second = nn.Sequential(nn.Conv2d(6, 8, 3, stride=2, bias=False), nn.BatchNorm2d(8), nn.ReLU())
    head = nn.Linear(8, CLASSES)
    nn.init.normal_(head.weight, std=4)
    return nn.Sequential(first, second, nn.AdaptiveAvgPool2d(1), nn.Flatten(), head).double()


def make_adapter(name: str, **arguments: Any) -> driftlaw.base.Adapter:
    """Return an adapter of a variant in float64."""
    method, settings = VARIANTS[name]
    kind = find_method(method)
    if issubclass(kind.Config, BatchStatsSettings):
        settings = {"statistics": "batch"} | settings
    if kind.needs_train_data:
        arguments["train_data"] = SyntheticDataset()
    return driftlaw.adapt(make_network(), method, **settings, **arguments)


def batches() -> list[torch.Tensor]:
    """Return the batches of all ranks."""
    return [make_images(index, count=count, dtype=torch.float64) for index, count in enumerate(SIZES)]


def run_alone(name: str) -> tuple[list[torch.Tensor], dict[str, Any]]:
    """Return the logits of every batch, and the last state, of one process."""
    adapter = make_adapter(name)
    return [adapter(images) for images in batches()], adapter.state_dict()


def error_of(call: Any) -> str:
    """Return class and message of the error that a call raises."""
    try:
        call()
    except (RankError, UsageError) as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def run_rank(rank: int, folder: Path) -> dict[str, Any]:
    """Return what the tests look at."""
    dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=2, timeout=timedelta(seconds=120))
    late = dist.new_group(timeout=timedelta(seconds=3))
    group = dist.group.WORLD
    result: dict[str, Any] = {"runs": {}}
    for name in VARIANTS:
        adapter = make_adapter(name, group=group)
        result["runs"][name] = [adapter(images.tensor_split(2)[rank]) for images in batches()], adapter.state_dict()

    adapter = make_adapter("law", group=group)
    before, (first, *_) = adapter.state_dict(), batches()
    own = first.tensor_split(2)[rank]
    other = make_network()
    with torch.no_grad():
        next(other.parameters()).add_(rank)
    result["errors"] = {
        "seed": error_of(lambda: make_adapter("law", group=group, seed=rank)),
        "settings": error_of(lambda: make_adapter("law", group=group, tau=1.0 + rank)),
        "model": error_of(lambda: driftlaw.adapt(other, "law", group=group)),
        "dtype": error_of(lambda: adapter(own.float() if rank else own)),
        "type": error_of(lambda: adapter(own.tolist() if rank else own)),
        "NaN": error_of(lambda: adapter(own * torch.nan if rank else own)),
        "whole": error_of(lambda: adapter.step(own[: 2 + rank], whole=True)),
        "keywords": error_of(lambda: adapter(own, mask=None)),
        "empty": error_of(lambda: adapter(own[:0])),
    }
    result["unchanged"] = adapter.steps == 0 and all(
        torch.equal(value, before[name]) for name, value in adapter.state_dict().items() if torch.is_tensor(value)
    )
    whole = copy.deepcopy(adapter)
    result["whole"] = whole.step(first, whole=True).logits, whole.predict(first, whole=True), whole.predict(own)
    result["pickled"] = pickle.loads(pickle.dumps(adapter))(first)
    if rank == 0:
        result["late"] = error_of(lambda: make_adapter("tent", group=late))
    dist.barrier()
    adapter(own)
    steps = adapter.steps
    if rank == 1:
        torch.save(result, folder / "1.pt")
        os._exit(9)  # as after kill -9
    result["dead"] = error_of(lambda: adapter(own)), adapter.steps == steps
    return result


if __name__ == "__main__":
    torch.set_num_threads(1)
    rank, folder = int(sys.argv[1]), Path(sys.argv[2])
    torch.save(run_rank(rank, folder), folder / f"{rank}.pt")
