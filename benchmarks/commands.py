"""``driftlaw bench step | memory | facts | floor | scaling``: what a step costs, each measured in one run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from torch import Tensor

    from benchmarks.cases import Plan
    from benchmarks.timing import Pace
    from benchmarks.variants import Variant

Told = Callable[[str], None]
Models = Annotated[str, typer.Option(help="Networks, with commas: wrn_40_2,wrn_28_10.")]
Methods = Annotated[str, typer.Option(help="Our methods, with commas, as `driftlaw list methods` names them.")]
Variants = Annotated[
    list[str] | None,
    typer.Option("--variant", help="One more way of doing a step: 'LABEL: METHOD key=value key=value'; repeatable."),
]
Only = Annotated[
    list[str] | None, typer.Option("--only", help="Measure the variant of this label and no others; repeatable.")
]
Weights = Annotated[
    str | None,
    typer.Option(
        help="Trained weights for some of the networks, with commas; images are then real ones, with noise. Others are "
        "random. A step costs the same either way, unless a setting skips tensors by their weight."
    ),
]
BatchSizes = Annotated[str, typer.Option(help="Images a batch, with commas.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, …")]
Threads = Annotated[int | None, typer.Option(help="CPU threads; as many as torch takes by default.")]
Rounds = Annotated[int | None, typer.Option(help="How often everybody has a turn: 20 on a GPU, 7 on a CPU.")]
Steps = Annotated[int | None, typer.Option(help="Steps a turn, at least: 10 on a GPU, 1 on a CPU.")]
WarmUp = Annotated[int | None, typer.Option(help="Steps before the first turn: 10 on a GPU, 2 on a CPU.")]
Side = Annotated[int | None, typer.Option(help="Height and width of the images; the networks' own by default.")]
Seed = Annotated[int, typer.Option(help="Of networks, images and augmentation.")]
Deterministic = Annotated[
    bool, typer.Option("--deterministic", help="The kernels that `driftlaw run` takes, in place of the fastest.")
]
Out = Annotated[Path | None, typer.Option(help="Also write the record, JSON, to this file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]


def step(
    models: Models = "wrn_40_2,wrn_28_10",
    methods: Methods = "norm,tent,law",
    variant: Variants = None,
    only: Only = None,
    weights: Weights = None,
    batch_sizes: BatchSizes = "200",
    device: Device = "auto",
    threads: Threads = None,
    rounds: Rounds = None,
    steps: Steps = None,
    warm_up: WarmUp = None,
    side: Side = None,
    memory: Annotated[bool, typer.Option(help="Measure peak memory too.")] = True,
    seed: Seed = 0,
    deterministic: Deterministic = False,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Milliseconds and peak memory of a step, beside a forward pass and the plain TENT and LAW, as ratios.

    All are measured in one process and in turns, so that whatever disturbs the machine disturbs all alike. Networks are
    random unless --weights names trained ones: a step costs the same.

    Example: driftlaw bench step --models wrn_40_2,wrn_28_10 --batch-sizes 200 --device cuda --out step.json

    On a small machine: driftlaw bench step --models wrn_16_1 --batch-sizes 64 --device cpu --threads 2

    Other settings: driftlaw bench step --variant 'every tenth: law fisher_every=10'
    """
    from benchmarks.step import compare_steps

    plan = _plan(models, methods, variant, only, weights, batch_sizes, device, threads, side, seed, deterministic)
    pace = _pace(plan, rounds, steps, warm_up)
    total = _contenders(plan) * (pace.rounds + 1)
    _report(lambda told: compare_steps(plan, pace, memory=memory, told=told), total, out, as_json)


def memory(
    models: Models = "wrn_40_2,wrn_28_10",
    methods: Methods = "norm,tent,law",
    variant: Variants = None,
    only: Only = None,
    weights: Weights = None,
    batch_sizes: BatchSizes = "200",
    device: Device = "auto",
    threads: Threads = None,
    side: Side = None,
    seed: Seed = 0,
    deterministic: Deterministic = False,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Peak memory of a step, every variant alone, as a share of the plain LAW's.

    Example: driftlaw bench memory --models wrn_28_10 --batch-sizes 64,200 --device cuda --out memory.json
    """
    from benchmarks.memory import compare_memory

    plan = _plan(models, methods, variant, only, weights, batch_sizes, device, threads, side, seed, deterministic)
    _report(lambda told: compare_memory(plan, told=told), _contenders(plan), out, as_json)


def facts(
    models: Models = "wrn_40_2",
    methods: Methods = "law",
    variant: Variants = None,
    only: Only = None,
    weights: Weights = None,
    batch_sizes: BatchSizes = "200",
    device: Device = "auto",
    threads: Threads = None,
    rounds: Rounds = None,
    steps: Steps = None,
    warm_up: WarmUp = None,
    side: Side = None,
    seed: Seed = 0,
    deterministic: Deterministic = False,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """What it costs to record all facts of every step, such as the weight of every layer.

    Example: driftlaw bench facts --models wrn_40_2 --device cuda --rounds 50 --out facts.json
    """
    from benchmarks.diagnostics import compare_facts

    plan = _plan(
        models, methods, variant, only, weights, batch_sizes, device, threads, side, seed, deterministic, ours=True
    )
    pace = _pace(plan, rounds, steps, warm_up)
    total = 2 * _contenders(plan) * (pace.rounds + 1)
    _report(lambda told: compare_facts(plan, pace, told=told), total, out, as_json)


def floor(
    models: Models = "wrn_40_2,wrn_28_10",
    methods: Methods = "tent,law",
    variant: Variants = None,
    only: Only = None,
    batch_sizes: BatchSizes = "200",
    device: Device = "auto",
    threads: Threads = None,
    rounds: Rounds = None,
    steps: Steps = None,
    warm_up: WarmUp = None,
    side: Side = None,
    seed: Seed = 0,
    deterministic: Deterministic = False,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """How far a step stands above what the machine could do: its operations and bytes against measured rates.

    Example: driftlaw bench floor --models wrn_28_10 --methods law --device cuda --out floor.json
    """
    from benchmarks.floor import measure_floor

    plan = _plan(models, methods, variant, only, None, batch_sizes, device, threads, side, seed, deterministic)
    pace = _pace(plan, rounds, steps, warm_up)
    total = _contenders(plan) * (pace.rounds + 1)
    _report(lambda told: measure_floor(plan, pace, told=told), total, out, as_json)


def scaling(
    axes: Annotated[
        str, typer.Option(help="What grows, with commas: batch_size, depth, width, tensors, stream.")
    ] = "batch_size,depth,width,tensors,stream",
    model: Annotated[str, typer.Option(help="The network whose batch size and stream grow.")] = "wrn_40_2",
    methods: Methods = "law",
    variant: Variants = None,
    only: Only = None,
    batch_size: Annotated[int, typer.Option(help="Images a batch, where something else grows.")] = 200,
    batch_sizes: BatchSizes = "8,16,32,64,128,200,400",
    depths: Annotated[str, typer.Option(help="Of wide resnets of width 2, with commas.")] = "10,16,22,28,40,64",
    widths: Annotated[str, typer.Option(help="Of wide resnets of depth 28, with commas.")] = "1,2,4,8,10",
    batches: Annotated[int, typer.Option(help="How long the stream is.")] = 10_000,
    windows: Annotated[int, typer.Option(help="Into how many windows the stream is cut.")] = 20,
    device: Device = "auto",
    threads: Threads = None,
    rounds: Rounds = None,
    steps: Steps = None,
    warm_up: WarmUp = None,
    side: Annotated[int, typer.Option(help="Height and width of the images.")] = 32,
    seed: Seed = 0,
    deterministic: Deterministic = False,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Milliseconds and megabytes of a step against batch size, depth, width, number of tensors and stream length.

    Example: driftlaw bench scaling --device cuda --out scaling.json

    A long stream alone: driftlaw bench scaling --axes stream --batches 10000 --device cuda
    """
    from benchmarks.scaling import Ranges, make_axes, measure_scaling

    plan = _plan(model, methods, variant, only, None, str(batch_size), device, threads, side, seed, deterministic)
    ranges = Ranges(
        batch_size=batch_size,
        model=model,
        batch_sizes=_numbers("--batch-sizes", batch_sizes),
        depths=_numbers("--depths", depths),
        widths=_numbers("--widths", widths),
        side=side,
    )
    _check({"--batches": batches, "--windows": windows})
    wanted, known = _names(axes), make_axes(ranges)
    points = sum(len(known[name].points) for name in wanted if name in known)
    ours = sum(variant.is_ours for variant in plan.fit)
    pace = _pace(plan, rounds, steps, warm_up)
    total = points + (windows * ours if "stream" in wanted else 0)

    def measure(told: Told) -> dict[str, Any]:
        return measure_scaling(wanted, plan, pace, ranges=ranges, batches=batches, windows=windows, told=told)

    _report(measure, total, out, as_json)


# --- what the commands share -------------------------------------------------------------------------------------


def _plan(
    models: str,
    methods: str,
    variants: list[str] | None,
    only: list[str] | None,
    weights: str | None,
    batch_sizes: str,
    device: str,
    threads: int | None,
    side: int | None,
    seed: int,
    deterministic: bool,
    ours: bool = False,
) -> Plan:
    """Return what a command was asked to measure, on what and where; with ``ours`` the references are left out."""
    import torch

    from benchmarks.cases import Plan
    from benchmarks.models import make_networks
    from driftlaw.errors import collected
    from driftlaw.hardware import pick_device

    _check({"--threads": threads, "--side": side})
    chosen = _chosen(_names(methods), variants or [], only or [], ours)
    if threads is not None:
        torch.set_num_threads(threads)
    plan = Plan(
        networks=make_networks(_names(models), weights=_names(weights or ""), seed=seed, side=side),
        batch_sizes=_numbers("--batch-sizes", batch_sizes),
        variants=chosen,
        device=pick_device(device),
        seed=seed,
        deterministic=deterministic,
        pool=_real_images() if weights else None,
    )
    if not plan.fit:
        reasons = [f"{entry['label']}: {entry['why']}" for entry in plan.left_out]
        raise collected("nothing can be measured here:", reasons)
    return plan


def _chosen(methods: list[str], texts: list[str], only: list[str], ours: bool) -> list[Variant]:
    """Return the usual variants of some methods and the user's own, or those of them that --only names."""
    from benchmarks.variants import default_variants, parse_variant
    from driftlaw.errors import UsageError, suggest, unknown
    from driftlaw.methods import list_methods

    for name in methods:
        if name not in list_methods():
            raise unknown("method", name, list_methods())
    variants = [each for each in default_variants(methods) if each.is_ours or not ours]
    variants += [parse_variant(text) for text in texts]
    labels = [each.label for each in variants]
    for label in only:
        if label not in labels:
            listed = ", ".join(f"«{each}»" for each in labels)  # a label may hold a comma
            raise UsageError(f"unknown variant «{label}»: {suggest(label, labels)}Valid labels: {listed}")
    return [each for each in variants if not only or each.label in only]


def _pace(plan: Plan, rounds: int | None, steps: int | None, warm_up: int | None) -> Pace:
    """Return how often to measure."""
    from benchmarks.timing import Pace

    pace = Pace.usual(plan.device, rounds, steps, warm_up)
    _check({"--rounds": pace.rounds, "--steps": pace.steps})
    return pace


def _contenders(plan: Plan) -> int:
    """Return how many variants are measured, on all networks and batch sizes together."""
    return len(list(plan.cells())) * len(plan.fit)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _numbers(option: str, text: str) -> list[int]:
    from driftlaw.errors import UsageError

    if not all(name.isdigit() and int(name) > 0 for name in _names(text)) or not _names(text):
        raise UsageError(f"{option} {text}: expected whole numbers above 0, with commas, such as 64,200")
    return [int(name) for name in _names(text)]


def _check(numbers: dict[str, int | None]) -> None:
    from driftlaw.errors import collected

    wrong = [
        f"{name} is {value}, expected 1 or more" for name, value in numbers.items() if value is not None and value < 1
    ]
    if wrong:
        raise collected("the benchmark cannot run:", wrong)


def _real_images() -> Tensor:
    """Return the embedded test images with noise, as floats: what a trained network is meant to adapt to."""
    import numpy as np
    import torch

    from driftlaw.corruptions import corrupt
    from driftlaw.datasets import load_dataset

    source = load_dataset("cifar10-embedded")
    pictures = source.images(np.arange(min(800, len(source)))).transpose(0, 3, 1, 2)
    return corrupt(torch.from_numpy(np.ascontiguousarray(pictures)), "gaussian_noise", 5).float() / 255


def _report(measure: Callable[[Told], dict[str, Any]], total: int, out: Path | None, as_json: bool) -> None:
    """Measure with a progress bar, write the record, print it."""
    from benchmarks.report_tables import render_bench_text
    from driftlaw.cli.console import command_line, progress_bar
    from driftlaw.files import atomic_path

    with progress_bar() as bar:
        task = bar.add_task("warming up", total=total)
        record = measure(lambda text: bar.update(task, advance=1, description=text))
    record = {"command": command_line(), **record}
    if out is not None:
        with atomic_path(out) as path:
            path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(record) if as_json else render_bench_text(record))
