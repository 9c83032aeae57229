"""``driftlaw bench``: what things cost, beside a plain reference, as ratios in one run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchmarks.commands import facts, floor, memory, scaling, step

if TYPE_CHECKING:
    from torch import Tensor

app = typer.Typer(help="Measure what things cost, beside a plain reference.", no_args_is_help=True)
for command in (step, memory, scaling, floor, facts):
    app.command()(command)


@app.command()
def corruptions(
    images: Annotated[int, typer.Option(help="How many images; more than the dataset has are its images again.")] = 512,
    severity: Annotated[int, typer.Option(help="1 to 5.")] = 5,
    dataset: Annotated[
        str, typer.Option(help="Whose images, as `driftlaw list datasets` names it.")
    ] = "cifar10-embedded",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, …")] = "cpu",
    threads: Annotated[int, typer.Option(help="CPU threads ours may use; the plain version uses one.")] = 2,
    full: Annotated[
        bool, typer.Option("--full", help="Make all of the benchmark, 15 × 5 × N images, and print the seconds.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Also write the record, JSON, to this file.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Where the data lies; DRIFTLAW_DATA by default.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
) -> None:
    """Images a second of every corruption, ours beside the plain image-by-image version.

    Example: driftlaw bench corruptions --images 512 --severity 5

    On a GPU: driftlaw bench corruptions --full --images 10000 --device cuda
    """
    import torch

    from benchmarks.corruptions import compare, make_all
    from driftlaw.cli.console import command_line, progress_bar
    from driftlaw.corruptions import list_corruptions
    from driftlaw.files import atomic_path
    from driftlaw.hardware import pick_device

    _check(images, severity, threads)
    torch.set_num_threads(threads)
    place, batch = pick_device(device), _images(dataset, images, data_dir)
    with progress_bar() as bar:
        task = bar.add_task("corruptions", total=len(list_corruptions("benchmark")))

        def told(name: str) -> None:
            bar.update(task, advance=1, description=name)

        if full:
            record = make_all(batch, device=place, told=told)
        else:
            record = compare(batch, severity=severity, device=place, told=told)
    record = {"command": command_line(), "dataset": dataset, **record}
    if out is not None:
        with atomic_path(out) as path:
            path.write_text(json.dumps(record, indent=2) + "\n")
    print(json.dumps(record) if as_json else _page(record))


@app.command()
def compare(
    other: Annotated[Path, typer.Option(help="Root of the other checkout.")],
    targets: Annotated[
        list[str] | None,
        typer.Option(help="METHOD, then 'fast', 'compiled' or key=value settings; several values allowed."),
    ] = None,
    models: Annotated[list[str] | None, typer.Option(help="Model names; several values allowed.")] = None,
    batch_size: Annotated[int, typer.Option(help="Images per batch.")] = 200,
    side: Annotated[int, typer.Option(help="Height and width of the images.")] = 32,
    num_classes: Annotated[int, typer.Option(help="Output classes of the models.")] = 10,
    device: Annotated[str, typer.Option(help="Device: auto, cpu, cuda, cuda:1, …")] = "auto",
    threads: Annotated[int | None, typer.Option(help="CPU threads per process (default: torch's).")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds (default: 20 on a GPU, 7 on a CPU).")] = None,
    steps: Annotated[
        int | None, typer.Option(help="Steps per round, at least (default: 10 on a GPU, 1 on a CPU).")
    ] = None,
    warm_up: Annotated[
        int | None, typer.Option(help="Steps before the first round (default: 10 on a GPU, 2 on a CPU).")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of weights, images and adapters.")] = 0,
    deterministic: Annotated[bool, typer.Option("--deterministic", help="Use deterministic cuDNN kernels.")] = False,
    out: Annotated[Path | None, typer.Option(help="Also write the JSON record to this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
) -> None:
    """Compare the step times of this checkout with another one, in alternating rounds of one run.

    Example: python -m benchmarks compare --other ../before --targets law "law fast" --models wrn_40_2 --device cuda
    """
    import torch

    from benchmarks.compare import Workload, compare_checkouts, parse_target, render_comparison
    from benchmarks.timing import Pace
    from driftlaw.cli.console import command_line, progress_bar
    from driftlaw.files import atomic_path
    from driftlaw.hardware import pick_device

    chosen = [parse_target(text) for text in targets or ("law", "tent")]
    place = pick_device(device)
    if threads is not None:
        torch.set_num_threads(threads)
    pace = Pace.usual(place, rounds, steps, warm_up)
    workload = Workload(models or ["wrn_40_2"], batch_size, place, side, num_classes, seed, threads, deterministic)
    with progress_bar() as bar:
        task = bar.add_task("starting", total=len(chosen) * len(workload.models) * pace.rounds)
        record = compare_checkouts(
            other, chosen, workload, pace, on_progress=lambda text: bar.update(task, advance=1, description=text)
        )
    record = {"command": command_line().replace(str(other), other.resolve().name), **record}
    if out is not None:
        with atomic_path(out) as path:
            path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(record) if as_json else render_comparison(record))


def repeat_options(words: list[str], names: tuple[str, ...] = ("--targets", "--models")) -> list[str]:
    """Return a command line in which each value of an option with several values has the option's name before it.

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
    try:
        app(args=repeat_options(words) if words[:1] == ["compare"] else words, prog_name="python -m benchmarks")
    except DriftlawError as error:
        typer.echo(f"benchmarks: {error}", err=True)
        sys.exit(error.exit_code)


def _check(images: int, severity: int, threads: int) -> None:
    from driftlaw.errors import collected

    found = {"--images": (images, 1, None), "--severity": (severity, 1, 5), "--threads": (threads, 1, None)}
    problems = [
        f"{option} is {value}, expected {low}{f' to {high}' if high else ' or more'}"
        for option, (value, low, high) in found.items()
        if value < low or (high and value > high)
    ]
    if problems:
        raise collected("the benchmark cannot run:", problems)


def _images(dataset: str, count: int, data_dir: Path | None) -> Tensor:
    import numpy as np
    import torch

    from driftlaw.datasets import load_dataset

    source = load_dataset(dataset, data_dir=data_dir)
    pictures = source.images(np.arange(count) % len(source))
    return torch.from_numpy(np.ascontiguousarray(pictures.transpose(0, 3, 1, 2)))


def _page(record: dict[str, Any]) -> str:
    where = f"{record['device']['name']}, {record['device']['threads']} threads, torch {record['versions']['torch']}"
    if record["bench"] == "corruptions-full":
        lines = [f"{name:<20}{seconds:>9.2f} s" for name, seconds in record["seconds_by_corruption"].items()]
        total = f"{record['images']:,} images in {record['seconds']:.1f} s on {where}"
        return "\n".join([*lines, total])
    head = f"{'images a second':<20}{'ours':>12}{'plain':>12}{'ratio':>9}"
    lines = [
        f"{speed['name']:<20}{speed['images_per_second']:>12,.0f}{speed['plain_images_per_second']:>12,.0f}"
        f"{speed['ratio']:>8.1f}×"
        for speed in record["speeds"]
    ]
    ours, plain = 1 / record["seconds_per_image"], 1 / record["plain_seconds_per_image"]
    total = f"{'all fifteen':<20}{ours:>12,.0f}{plain:>12,.0f}{record['ratio']:>8.1f}×"
    note = f"severity {record['severity']}, {record['images']} images of {record['dataset']}, on {where}"
    return "\n".join([head, *lines, total, note])


if __name__ == "__main__":
    main()
