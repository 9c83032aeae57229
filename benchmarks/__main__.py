"""Entry point of ``python -m benchmarks``."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks import options
from benchmarks.options import ProgressCallback, command_line, report_result
from benchmarks.reliability.commands import app as reliability_app
from benchmarks.scale.commands import app as scale_app
from benchmarks.step_commands import diagnostics, memory, roofline, scaling, step
from benchmarks.train.command import train
from benchmarks.tune.command import tune
from benchmarks.tune.select import select

app = typer.Typer(
    help="Measure time, memory and errors of driftlaw's methods; train source models; tune settings.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (step, memory, scaling, roofline, diagnostics, train, tune, select):
    app.command()(command)
app.add_typer(reliability_app, name="reliability")
app.add_typer(scale_app, name="scale")


@app.command()
def corruptions(
    images: Annotated[int, typer.Option(help="Number of images; they repeat if the dataset has fewer.")] = 512,
    severity: Annotated[int, typer.Option(help="Severity, 1 to 5.")] = 5,
    dataset: Annotated[str, typer.Option(help="Dataset name (see `driftlaw list datasets`).")] = "cifar10-embedded",
    device: options.Device = "cpu",
    threads: Annotated[int, typer.Option(help="CPU threads for driftlaw; the reference uses one.")] = 2,
    full: Annotated[
        bool, typer.Option("--full", help="Corrupt a whole benchmark (15 × 5 × N images) and print the seconds.")
    ] = False,
    out: options.Out = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Data directory (default: $DRIFTLAW_DATA, then the user cache).")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Images per second of every corruption, compared with the image-by-image reference.

    Example: python -m benchmarks corruptions --images 512 --severity 5

    On a GPU: python -m benchmarks corruptions --full --images 10000 --device cuda
    """
    import torch

    from benchmarks.corruptions import compare_corruptions, load_images, time_full_benchmark
    from driftlaw.corruptions import list_corruptions
    from driftlaw.errors import combined_error
    from driftlaw.hardware import pick_device

    limits = {"--images": (images, 1, None), "--severity": (severity, 1, 5), "--threads": (threads, 1, None)}
    problems = [
        f"{option} is {value}, expected {low}{f' to {high}' if high else ' or more'}"
        for option, (value, low, high) in limits.items()
        if value < low or (high and value > high)
    ]
    if problems:
        raise combined_error("Invalid options:", problems)
    torch.set_num_threads(threads)
    target, batch = pick_device(device), load_images(dataset, images, data_dir)

    def measure(on_progress: ProgressCallback) -> dict[str, Any]:
        if full:
            record = time_full_benchmark(batch, device=target, on_progress=on_progress)
        else:
            record = compare_corruptions(batch, severity=severity, device=target, on_progress=on_progress)
        return {"dataset": dataset, **record}

    report_result(measure, len(list_corruptions("benchmark")), out, as_json)


@app.command()
def errors(
    preset: Annotated[str, typer.Argument(help="Preset of the stream, such as embedded or cifar10-c.")],
    methods: Annotated[str, typer.Option(help="Comma-separated: tent, law.")] = "tent,law",
    variant: options.Variants = None,
    limit: Annotated[int | None, typer.Option(help="Maximum number of images per domain (default: all).")] = None,
    seeds: Annotated[str, typer.Option(help="Comma-separated seeds.")] = "1",
    device: options.Device = "auto",
    out: options.Out = None,
    as_json: options.AsJson = False,
) -> None:
    """Online error of naive TENT and LAW and of driftlaw's, on the same stream.

    Example: python -m benchmarks errors embedded --limit 400 --seeds 1,2

    With another variant: python -m benchmarks errors cifar10-c --device cuda --variant 'fast: law preset=fast'
    """
    from benchmarks.errors import compare_errors
    from benchmarks.targets import parse_variant
    from driftlaw.hardware import pick_device

    names, numbers = options.split_names(methods), options.split_numbers("--seeds", seeds)
    variants = [parse_variant(text) for text in variant or []]

    def measure(on_progress: ProgressCallback) -> dict[str, Any]:
        return compare_errors(
            preset,
            device=pick_device(device),
            methods=names,
            variants=variants,
            seeds=numbers,
            limit=limit,
            on_progress=on_progress,
        )

    report_result(measure, len(numbers) * (3 * len(names) + len(variants)), out, as_json)


@app.command()
def batch_sizes(
    sizes: Annotated[str, typer.Option(help="Comma-separated batch sizes.")] = "1,2,4,8,16,32,64,200",
    methods: options.Methods = "source,norm,tent,law",
    corruptions: Annotated[str, typer.Option(help="benchmark (fifteen), held_out, or one corruption.")] = "benchmark",
    statistics: Annotated[str, typer.Option(help="Setting of the methods: auto, batch, window or mixed.")] = "auto",
    limit: Annotated[int | None, typer.Option(help="Maximum number of images per domain (default: all).")] = None,
    seed: Annotated[int, typer.Option(help="Seed of stream and adapter.")] = 1,
    device: options.Device = "auto",
    out: options.Out = None,
    as_json: options.AsJson = False,
) -> None:
    """Error of methods with their defaults for several batch sizes, on the embedded images and model.

    Example: python -m benchmarks batch-sizes --limit 400 --out results/bench/batch-sizes.json

    To choose settings: python -m benchmarks batch-sizes --corruptions held_out --sizes 1,8 --methods norm
    """
    from benchmarks.batch_sizes import measure_batch_sizes
    from driftlaw.errors import unknown_name
    from driftlaw.hardware import pick_device
    from driftlaw.methods import list_methods

    numbers, names = options.split_numbers("--sizes", sizes), options.split_names(methods)
    for name in names:
        if name not in list_methods():
            raise unknown_name("method", name, list_methods())

    def measure(on_progress: ProgressCallback) -> dict[str, Any]:
        return measure_batch_sizes(
            numbers,
            names,
            corruptions=corruptions,
            statistics=statistics,
            limit=limit,
            seed=seed,
            device=pick_device(device),
            on_progress=on_progress,
        )

    report_result(measure, len(numbers) * len(names), out, as_json)


@app.command()
def compare(
    other: Annotated[Path, typer.Option(help="Root of the other checkout.")],
    targets: Annotated[
        list[str] | None,
        typer.Option(help="METHOD, then 'fast', 'compiled' or key=value settings. Several values allowed."),
    ] = None,
    models: Annotated[list[str] | None, typer.Option(help="Model names. Several values allowed.")] = None,
    batch_size: Annotated[int, typer.Option(help="Images per batch.")] = 200,
    side: Annotated[int, typer.Option(help="Height and width of the images.")] = 32,
    num_classes: Annotated[int, typer.Option(help="Output classes of the models.")] = 10,
    device: options.Device = "auto",
    threads: options.Threads = None,
    rounds: options.Rounds = None,
    steps: options.Steps = None,
    warm_up: options.WarmUp = None,
    seed: options.Seed = 0,
    deterministic: options.Deterministic = False,
    out: options.Out = None,
    as_json: options.AsJson = False,
) -> None:
    """Compare the step times of this checkout with those of another one, in alternating rounds of one run.

    'ratio' is the median time of this checkout divided by that of the other one.

    Example: python -m benchmarks compare --other ../before --targets law "law fast" --models wrn_40_2 --device cuda
    """
    import torch

    from benchmarks.compare import Workload, compare_checkouts, parse_target
    from benchmarks.timing import Repetitions
    from driftlaw.hardware import pick_device

    variants = [parse_target(text) for text in targets or ("law", "tent")]
    where = pick_device(device)
    if threads is not None:
        torch.set_num_threads(threads)
    repetitions = Repetitions.default(where, rounds, steps, warm_up)
    options.check_positive({"--rounds": repetitions.rounds, "--steps": repetitions.steps, "--batch-size": batch_size})
    workload = Workload(models or ["wrn_40_2"], batch_size, where, side, num_classes, seed, threads, deterministic)

    def measure(on_progress: ProgressCallback) -> dict[str, Any]:
        return compare_checkouts(other, variants, workload, repetitions, on_progress=on_progress)

    typed = command_line().replace(str(other), other.resolve().name)  # a record must not name folders of a machine
    total = len(variants) * len(workload.models) * repetitions.rounds
    report_result(measure, total, out, as_json, command=typed)


@app.command()
def report(
    records: Annotated[list[Path], typer.Argument(help="JSON records of benchmarks.")],
    format: Annotated[str, typer.Option(help="html, md or text.")] = "text",
    out: Annotated[Path | None, typer.Option(help="Output file (default: stdout).")] = None,
) -> None:
    """Tables and figures from JSON records of benchmarks.

    Example: python -m benchmarks report results/bench/step-h200.json --format md

    A page with figures: python -m benchmarks report results/bench/*.json --format html --out bench.html
    """
    from benchmarks.report_page import build_bench_report
    from benchmarks.report_tables import read_bench
    from driftlaw.files import atomic_path

    text = build_bench_report([read_bench(path) for path in records], format, command=command_line())
    if out is None:
        print(text, end="")
        return
    with atomic_path(out) as path:
        path.write_text(text, encoding="utf-8")


def repeat_options(words: list[str], names: tuple[str, ...] = ("--targets", "--models")) -> list[str]:
    """Return a command line in which each value of an option with several values follows the option's name.

    >>> repeat_options(["compare", "--models", "a", "b", "--seed", "1"])
    ['compare', '--models', 'a', '--models', 'b', '--seed', '1']
    """
    result: list[str] = []
    option = ""
    for word in words:
        if word.startswith("--"):
            option = word if word in names else ""
            result += [] if option else [word]
        else:
            result += [option, word] if option else [word]
    return result


def main() -> None:
    """Run the command line; errors become one message on stderr and an exit code."""
    from driftlaw.errors import DriftlawError

    words = sys.argv[1:]
    # As Ctrl-C: worker processes and runs save their state first.
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        app(args=repeat_options(words) if words[:1] == ["compare"] else words, prog_name="python -m benchmarks")
    except (DriftlawError, OSError) as error:
        typer.echo(f"benchmarks: {error}", err=True)
        sys.exit(error.exit_code if isinstance(error, DriftlawError) else 1)
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    main()
