"""Command-line options that several benchmarks share, and what is made from them."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from torch import Tensor

    from benchmarks.cases import BenchPlan
    from benchmarks.targets import Variant
    from benchmarks.timing import Repetitions

ProgressCallback = Callable[[str], None]
Models = Annotated[str, typer.Option(help="Comma-separated model names, such as wrn_40_2,wrn_28_10.")]
Methods = Annotated[str, typer.Option(help="Comma-separated method names (see `driftlaw list methods`).")]
Variants = Annotated[
    list[str] | None,
    typer.Option("--variant", help="Further variant to measure: 'LABEL: METHOD key=value key=value'. Repeatable."),
]
Only = Annotated[list[str] | None, typer.Option("--only", help="Measure only the variant of this label. Repeatable.")]
Weights = Annotated[
    str | None,
    typer.Option(
        help="Comma-separated trained weights for some of the models; images are then real ones with noise. Other "
        "models are random. A step costs the same, unless a setting skips tensors by their layer weight."
    ),
]
BatchSizes = Annotated[str, typer.Option(help="Comma-separated batch sizes.")]
Device = Annotated[str, typer.Option(help="Device: auto, cpu, cuda, cuda:1, …")]
Threads = Annotated[int | None, typer.Option(help="CPU threads (default: torch's).")]
Rounds = Annotated[int | None, typer.Option(help="Rounds (default: 20 on a GPU, 7 on a CPU).")]
Steps = Annotated[int | None, typer.Option(help="Minimum steps per round (default: 10 on a GPU, 1 on a CPU).")]
WarmUp = Annotated[int | None, typer.Option(help="Steps before the first round (default: 10 on a GPU, 2 on a CPU).")]
Side = Annotated[
    str | None, typer.Option(help="Height and width of the images, such as 32 or 360,480 (default: the model's).")
]
Seed = Annotated[int, typer.Option(help="Seed of random weights, images and augmentation.")]
Deterministic = Annotated[
    bool, typer.Option("--deterministic", help="Use the cuDNN kernels of `driftlaw run` instead of the fastest.")
]
Out = Annotated[Path | None, typer.Option(help="Also write the JSON record to this file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]


def make_plan(
    models: str,
    methods: str,
    variants: list[str] | None,
    only: list[str] | None,
    weights: str | None,
    batch_sizes: str,
    device: str,
    threads: int | None,
    side: str | None,
    seed: int,
    deterministic: bool,
    adapters_only: bool = False,
) -> BenchPlan:
    """Return the plan of a command; with ``adapters_only`` without the baselines."""
    import torch

    from benchmarks.cases import BenchPlan
    from benchmarks.models import make_models
    from driftlaw.errors import UsageError, combined_error
    from driftlaw.hardware import pick_device

    check_positive({"--threads": threads})
    sides = [] if side is None else split_numbers("--side", side)
    if len(sides) > 2:
        raise UsageError(f"--side is '{side}'. Expected one number, or height and width such as 360,480.")
    chosen = _choose_variants(split_names(methods), variants or [], only or [], adapters_only)
    if threads is not None:
        torch.set_num_threads(threads)
    plan = BenchPlan(
        models=make_models(
            split_names(models),
            weights=split_names(weights or ""),
            seed=seed,
            side=sides[0] if sides else None,
            width=sides[1] if len(sides) > 1 else None,
        ),
        batch_sizes=split_numbers("--batch-sizes", batch_sizes),
        variants=chosen,
        device=pick_device(device),
        seed=seed,
        deterministic=deterministic,
        pool=_real_images() if weights else None,
    )
    if not plan.supported:
        reasons = [f"{entry['label']}: {entry['why']}" for entry in plan.skipped]
        raise combined_error("None of the variants can be measured here:", reasons)
    return plan


def _choose_variants(methods: list[str], texts: list[str], only: list[str], adapters_only: bool) -> list[Variant]:
    from benchmarks.targets import default_variants, parse_variant
    from driftlaw.errors import UsageError, suggest, unknown_name
    from driftlaw.methods import list_methods

    for name in methods:
        if name not in list_methods():
            raise unknown_name("method", name, list_methods())
    variants = [each for each in default_variants(methods) if each.is_adapter or not adapters_only]
    variants += [parse_variant(text) for text in texts]
    labels = [each.label for each in variants]
    for label in only:
        if label not in labels:
            listed = ", ".join(f"'{each}'" for each in labels)  # labels may contain commas
            raise UsageError(f"Unknown variant '{label}'. {suggest(label, labels)}Valid labels: {listed}.")
    return [each for each in variants if not only or each.label in only]


def make_repetitions(plan: BenchPlan, rounds: int | None, steps: int | None, warm_up: int | None) -> Repetitions:
    """Return the repetitions of a command."""
    from benchmarks.timing import Repetitions

    repetitions = Repetitions.default(plan.device, rounds, steps, warm_up)
    check_positive({"--rounds": repetitions.rounds, "--steps": repetitions.steps})
    return repetitions


def count_targets(plan: BenchPlan) -> int:
    """Return the number of targets over all models and batch sizes."""
    return len(list(plan.cases())) * len(plan.supported)


def split_names(text: str) -> list[str]:
    """Return the names of a comma-separated list."""
    return [name.strip() for name in text.split(",") if name.strip()]


def split_numbers(option: str, text: str) -> list[int]:
    """Return the positive numbers of a comma-separated list."""
    from driftlaw.errors import UsageError

    names = split_names(text)
    if not names or not all(name.isdigit() and int(name) > 0 for name in names):
        raise UsageError(f"{option} is '{text}'. Expected comma-separated positive integers, such as 64,200.")
    return [int(name) for name in names]


def check_positive(numbers: dict[str, int | None]) -> None:
    """Raise UsageError that names every option below 1."""
    from driftlaw.errors import combined_error

    problems = [
        f"{name} is {value}, expected 1 or more" for name, value in numbers.items() if value is not None and value < 1
    ]
    if problems:
        raise combined_error("Invalid options:", problems)


def _real_images() -> Tensor:
    """Return the embedded test images with noise as floats, the inputs that trained models adapt to."""
    from benchmarks.corruptions import load_images
    from driftlaw.corruptions import corrupt
    from driftlaw.datasets import load_dataset

    count = min(800, len(load_dataset("cifar10-embedded")))
    return corrupt(load_images("cifar10-embedded", count), "gaussian_noise", 5).float() / 255


def command_line() -> str:
    """Return the current command as typed."""
    return shlex.join(["python", "-m", "benchmarks", *sys.argv[1:]])


def report_result(
    measure: Callable[[ProgressCallback], dict[str, Any]],
    total: int,
    out: Path | None,
    as_json: bool,
    *,
    command: str | None = None,
) -> None:
    """Measure with a progress bar, write the record, and print it."""
    from benchmarks.report_tables import render_bench_text
    from driftlaw.cli.console import progress_bar
    from driftlaw.files import atomic_path

    with progress_bar() as bar:
        task = bar.add_task("warm-up", total=total)
        record = measure(lambda text: bar.update(task, advance=1, description=text))
    record = {"command": command or command_line(), **record}
    if out is not None:
        with atomic_path(out) as path:
            path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(record) if as_json else render_bench_text(record))
