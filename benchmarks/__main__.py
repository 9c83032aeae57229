"""``driftlaw bench``: what things cost, beside a plain reference, as ratios in one run."""

from __future__ import annotations

import json
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
