"""An adapter from the options of the command line, for commands that predict images as they arrive."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from driftlaw.cli.options import with_guard
from driftlaw.errors import UsageError

if TYPE_CHECKING:
    from torch import nn

    from driftlaw.base import Adapter


def load_adapter(
    method: str | None,
    network: str,
    checkpoint: Path | None = None,
    normalize: str | None = None,
    assignments: Sequence[str] = (),
    *,
    guard: bool = False,
    device: str = "auto",
    data_dir: Path | None = None,
) -> tuple[Adapter, nn.Module]:
    """Return the adapter that options of ``driftlaw run`` describe, and its source model.

    There is no preset: settings that are not assigned have defaults that fit the network.
    """
    from driftlaw.components.train_data import TrainData
    from driftlaw.datasets import load_dataset
    from driftlaw.experiments import RunContext, plan_run
    from driftlaw.hardware import pick_device
    from driftlaw.methods import default_method, make_adapter
    from driftlaw.torch_files import cache_dir

    plan = partial(
        plan_run,
        None,
        assignments=with_guard(assignments, guard),
        model=network,
        checkpoint=str(checkpoint) if checkpoint else None,
        normalize=normalize,
    )
    spec, *others = plan(methods=method or "law")
    if others:
        raise UsageError(f"--method {method} names several methods. Expected one.")
    model, train_data = RunContext(pick_device(device), data_dir).model(spec.model), None
    if method is None and default_method(model) != spec.method:
        (spec,) = plan(methods=default_method(model))
    if spec.needs_train_data:
        train_data = TrainData(load_dataset(spec.train_dataset, data_dir=data_dir, split="train"), cache_dir(data_dir))
    return make_adapter(spec.method, model, spec.settings, train_data=train_data), model
