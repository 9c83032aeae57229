"""``scale ranks``: several ranks with parts of the batches, compared with one process, in float64."""

from __future__ import annotations

import os
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchmarks import options

if TYPE_CHECKING:
    from torch import Tensor

SIZES = (33, 33, 34, 33, 32, 3, 35, 33, 33, 1)
"""Images of the batches of all ranks, again and again. The last one of a run has 33."""
VARIANTS = {"law": ({}, {"fisher": "per_sample"}, {"moments": "kept"}, {"guard": True}), "tent": ({}, {"guard": True})}
"""Settings of methods that are measured with other settings than their defaults."""
SMALLER = {"adacontrast": {"memory_size": 256}, "cotta": {"augmentations": 4}, "rotta": {"update_every": 16}}
"""Settings that take less time, or make more updates."""
TIMEOUT = 300  # seconds


def ranks(
    ranks: Annotated[list[int], typer.Option(min=2, help="Number of ranks. Repeatable.")] = [2, 4],  # noqa: B006
    steps: Annotated[int, typer.Option(min=1, help="Batches.")] = 20,
    methods: Annotated[str | None, typer.Option(help="Comma-separated method names (default: all).")] = None,
    out: options.Out = None,
    as_json: options.AsJson = False,
) -> None:
    """Compare ranks that share every batch with one process that has all images, for all methods, on a CPU.

    The model is the small network of `driftlaw check` in float64. Batches have uneven sizes. Some have fewer images
    than there are ranks, or than a batch needs for statistics of its own.

    Example: python -m benchmarks scale ranks --out results/bench/scale-ranks.json
    """
    import torch
    import torch.multiprocessing as mp

    from driftlaw.hardware import environment
    from driftlaw.methods import list_methods

    torch.set_num_threads(1)
    chosen = options.split_names(methods) if methods else list_methods()
    cases = [(method, settings) for method in chosen for settings in VARIANTS.get(method, ({},))]

    def measure(on_progress: options.ProgressCallback) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as root:
            folder = Path(root)
            run_cases(cases, steps, folder / "alone.pt", None)
            on_progress("one process")
            for size in ranks:
                mp.spawn(run_rank, (size, cases, steps, folder), nprocs=size)
                on_progress(f"{size} ranks")
            rows = compare(cases, ranks, folder)
        setting = {"network": "wrn_10_1, 4 classes, random weights", "steps": steps, "sizes": SIZES, "dtype": "float64"}
        return {"bench": "scale-ranks", **setting, "rows": rows, **environment(torch.device("cpu"))}

    options.report_result(measure, 1 + len(ranks), out, as_json)


def run_rank(rank: int, size: int, cases: list[tuple[str, Any]], steps: int, folder: Path) -> None:
    """Run all cases on one rank of a new process group."""
    from datetime import timedelta

    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    store, timeout = f"file://{folder}/store-{size}", timedelta(seconds=TIMEOUT)
    dist.init_process_group("gloo", store, rank=rank, world_size=size, timeout=timeout)
    run_cases(cases, steps, folder / f"{size}-{rank}.pt", dist.group.WORLD, rank, size)
    dist.destroy_process_group()


def run_cases(cases: list[tuple[str, Any]], steps: int, path: Path, group: Any, rank: int = 0, size: int = 1) -> None:
    """Run an adapter for every case, and save the logits of this rank, the last state and the updated tensors."""
    import torch

    import driftlaw
    from driftlaw.base.find_method import find_method
    from driftlaw.testing.fixtures import SyntheticDataset, make_images, tiny_model

    os.environ["DRIFTLAW_DATA"] = str(path.with_suffix(""))  # a cache of its own
    results = []
    for method, settings in cases:
        more = {"train_data": SyntheticDataset()} if find_method(method).needs_train_data else {}
        with warnings.catch_warnings(action="ignore"):
            adapter = driftlaw.adapt(
                tiny_model().double(), method, group=group, **SMALLER.get(method, {}), **settings, **more
            )
            initial, logits = adapter.state_dict(), []
            for step in range(steps):
                count = SIZES[step % len(SIZES)] if step + 1 < steps else SIZES[0]
                logits.append(adapter(make_images(step, count=count, dtype=torch.float64).tensor_split(size)[rank]))
        state = {name: value for name, value in adapter.state_dict().items() if isinstance(value, torch.Tensor)}
        adapted = [f"model.{name}" for name in adapter.trainable_names]
        changed = largest_difference([initial[name] for name in adapted], [state[name] for name in adapted])
        results.append((logits, state, changed, adapter.steps))
    torch.save(results, path)


def compare(cases: list[tuple[str, Any]], sizes: list[int], folder: Path) -> list[dict[str, Any]]:
    """Return the rows of the record: largest differences of logits and of tensors of the state, per number of ranks.

    ``changed`` is the largest change of an adapted parameter in one process, ``same_state`` whether all ranks have the
    same bits.
    """
    import torch

    def load(name: str) -> Any:
        return torch.load(folder / name, weights_only=False)

    alone = load("alone.pt")
    on_ranks = {size: [load(f"{size}-{rank}.pt") for rank in range(size)] for size in sizes}
    rows = []
    for index, (method, settings) in enumerate(cases):
        logits, state, changed, updates = alone[index]
        variant = " ".join([method, *(f"{name}={value}" for name, value in settings.items())])
        row = {"variant": variant, "method": method, "updates": updates, "changed": changed, "same_state": True}
        for size, results in on_ranks.items():
            parts, states = [one[index][0] for one in results], [one[index][1] for one in results]
            gathered = [torch.cat(batch) for batch in zip(*parts, strict=True)]
            row[f"logits_{size}"] = largest_difference(gathered, logits)
            row[f"state_{size}"] = largest_difference([states[0][name] for name in state], list(state.values()))
            row["same_state"] &= all(torch.equal(one[name], states[0][name]) for one in states for name in state)
        rows.append(row)
    return rows


def largest_difference(first: list[Tensor], second: list[Tensor]) -> float:
    """Return the largest absolute difference of tensors. Two infinite values do not differ."""
    pairs = [(one.double(), other.double()) for one, other in zip(first, second, strict=True) if one.numel()]
    return max((float((one - other).nan_to_num(0.0).abs().max()) for one, other in pairs), default=0.0)
