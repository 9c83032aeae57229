"""Benchmarks of a step: ``python -m benchmarks step | memory | diagnostics | roofline | scaling``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from benchmarks import options
from benchmarks.options import ProgressCallback, count_targets, make_plan, make_repetitions, report_result


def step(
    models: options.Models = "wrn_40_2,wrn_28_10",
    methods: options.Methods = "norm,tent,law",
    variant: options.Variants = None,
    only: options.Only = None,
    weights: options.Weights = None,
    batch_sizes: options.BatchSizes = "200",
    device: options.Device = "auto",
    threads: options.Threads = None,
    rounds: options.Rounds = None,
    steps: options.Steps = None,
    warm_up: options.WarmUp = None,
    side: options.Side = None,
    memory: Annotated[bool, typer.Option(help="Also measure peak memory.")] = True,
    seed: options.Seed = 0,
    deterministic: options.Deterministic = False,
    out: options.Out = None,
    as_json: options.AsJson = False,
) -> None:
    """Time and peak memory of a step, with speedups over a forward pass, naive TENT and naive LAW.

    All variants are measured in one process in interleaved rounds. Models are random unless --weights names trained
    ones; a step costs the same.

    Example: python -m benchmarks step --models wrn_40_2,wrn_28_10 --batch-sizes 200 --device cuda --out step.json

    On a small machine: python -m benchmarks step --models wrn_16_1 --batch-sizes 64 --device cpu --threads 2

    Other settings: python -m benchmarks step --variant 'every tenth: law fisher_every=10'
    """
    from benchmarks.step import measure_steps

    plan = make_plan(models, methods, variant, only, weights, batch_sizes, device, threads, side, seed, deterministic)
    repetitions = make_repetitions(plan, rounds, steps, warm_up)
    total = count_targets(plan) * (repetitions.rounds + 1)

    def measure(on_progress: ProgressCallback) -> dict[str, Any]:
        return measure_steps(plan, repetitions, memory=memory, on_progress=on_progress)

    report_result(measure, total, out, as_json)


def memory(
    models: options.Models = "wrn_40_2,wrn_28_10",
    methods: options.Methods = "norm,tent,law",
    variant: options.Variants = None,
    only: options.Only = None,
    weights: options.Weights = None,
    batch_sizes: options.BatchSizes = "200",
    device: options.Device = "auto",
    threads: options.Threads = None,
    side: options.Side = None,
    seed: options.Seed = 0,
    deterministic: options.Deterministic = False,
    out: options.Out = None,
    as_json: options.AsJson = False,
) -> None:
    """Peak memory of a step, every variant alone, as a fraction of naive LAW's.

    Example: python -m benchmarks memory --models wrn_28_10 --batch-sizes 64,200 --device cuda --out memory.json
    """
    from benchmarks.memory import measure_memory

    plan = make_plan(models, methods, variant, only, weights, batch_sizes, device, threads, side, seed, deterministic)
    report_result(lambda on_progress: measure_memory(plan, on_progress=on_progress), count_targets(plan), out, as_json)


def diagnostics(
    models: options.Models = "wrn_40_2",
    methods: options.Methods = "law",
    variant: options.Variants = None,
    only: options.Only = None,
    weights: options.Weights = None,
    batch_sizes: options.BatchSizes = "200",
    device: options.Device = "auto",
    threads: options.Threads = None,
    rounds: options.Rounds = None,
    steps: options.Steps = None,
    warm_up: options.WarmUp = None,
    side: options.Side = None,
    seed: options.Seed = 0,
    deterministic: options.Deterministic = False,
    out: options.Out = None,
    as_json: options.AsJson = False,
) -> None:
    """Overhead of recording all diagnostics of every step, such as the weight of every layer.

    Example: python -m benchmarks diagnostics --models wrn_40_2 --device cuda --rounds 50 --out diagnostics.json
    """
    from benchmarks.diagnostics import diagnostics_overhead

    plan = make_plan(
        models,
        methods,
        variant,
        only,
        weights,
        batch_sizes,
        device,
        threads,
        side,
        seed,
        deterministic,
        adapters_only=True,
    )
    repetitions = make_repetitions(plan, rounds, steps, warm_up)
    total = 2 * count_targets(plan) * (repetitions.rounds + 1)
    report_result(
        lambda on_progress: diagnostics_overhead(plan, repetitions, on_progress=on_progress), total, out, as_json
    )


def roofline(
    models: options.Models = "wrn_40_2,wrn_28_10",
    methods: options.Methods = "tent,law",
    variant: options.Variants = None,
    only: options.Only = None,
    batch_sizes: options.BatchSizes = "200",
    device: options.Device = "auto",
    threads: options.Threads = None,
    rounds: options.Rounds = None,
    steps: options.Steps = None,
    warm_up: options.WarmUp = None,
    side: options.Side = None,
    seed: options.Seed = 0,
    deterministic: options.Deterministic = False,
    out: options.Out = None,
    as_json: options.AsJson = False,
) -> None:
    """Ratio of the time of a step to its limit: operations and bytes over the measured rates of the device.

    Example: python -m benchmarks roofline --models wrn_28_10 --methods law --device cuda --out roofline.json
    """
    from benchmarks.roofline import measure_roofline

    plan = make_plan(models, methods, variant, only, None, batch_sizes, device, threads, side, seed, deterministic)
    repetitions = make_repetitions(plan, rounds, steps, warm_up)
    total = count_targets(plan) * (repetitions.rounds + 1)
    report_result(lambda on_progress: measure_roofline(plan, repetitions, on_progress=on_progress), total, out, as_json)


def scaling(
    axes: Annotated[
        str, typer.Option(help="Comma-separated axes: batch_size, depth, width, tensors, stream.")
    ] = "batch_size,depth,width,tensors,stream",
    model: Annotated[str, typer.Option(help="Model for the axes batch_size and stream.")] = "wrn_40_2",
    methods: options.Methods = "law",
    variant: options.Variants = None,
    only: options.Only = None,
    batch_size: Annotated[int, typer.Option(help="Batch size for the other axes.")] = 200,
    batch_sizes: options.BatchSizes = "8,16,32,64,128,200,400",
    depths: Annotated[
        str, typer.Option(help="Comma-separated depths of WideResNets of width 2.")
    ] = "10,16,22,28,40,64",
    widths: Annotated[str, typer.Option(help="Comma-separated widths of WideResNets of depth 28.")] = "1,2,4,8,10",
    batches: Annotated[int, typer.Option(help="Length of the stream in batches.")] = 10_000,
    windows: Annotated[int, typer.Option(help="Number of windows that the stream is divided into.")] = 20,
    device: options.Device = "auto",
    threads: options.Threads = None,
    rounds: options.Rounds = None,
    steps: options.Steps = None,
    warm_up: options.WarmUp = None,
    side: Annotated[int, typer.Option(help="Height and width of the images.")] = 32,
    seed: options.Seed = 0,
    deterministic: options.Deterministic = False,
    out: options.Out = None,
    as_json: options.AsJson = False,
) -> None:
    """Time and memory of a step as a function of batch size, depth, width, number of tensors and stream length.

    Example: python -m benchmarks scaling --device cuda --out scaling.json

    Only a long stream: python -m benchmarks scaling --axes stream --batches 10000 --device cuda
    """
    from benchmarks.scaling import Ranges, make_axes, measure_scaling

    plan = make_plan(
        model, methods, variant, only, None, str(batch_size), device, threads, str(side), seed, deterministic
    )
    ranges = Ranges(
        batch_size=batch_size,
        model=model,
        batch_sizes=options.split_numbers("--batch-sizes", batch_sizes),
        depths=options.split_numbers("--depths", depths),
        widths=options.split_numbers("--widths", widths),
        side=side,
    )
    options.check_positive({"--batches": batches, "--windows": windows})
    names, known = options.split_names(axes), make_axes(ranges)
    points = sum(len(known[name].points) for name in names if name in known)
    adapters = sum(each.is_adapter for each in plan.supported)
    repetitions = make_repetitions(plan, rounds, steps, warm_up)
    total = points + (windows * adapters if "stream" in names else 0)

    def measure(on_progress: ProgressCallback) -> dict[str, Any]:
        return measure_scaling(
            names, plan, repetitions, ranges=ranges, batches=batches, windows=windows, on_progress=on_progress
        )

    report_result(measure, total, out, as_json)
