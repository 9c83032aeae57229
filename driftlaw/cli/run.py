"""``driftlaw run``: a benchmark, some methods, some seeds; a record each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from driftlaw.experiments import Cell
    from driftlaw.records import RunRecord


def run(
    preset: Annotated[
        str, typer.Argument(help="A name of `driftlaw list presets`, a TOML file of your own, or several: A+B.")
    ] = "embedded",
    methods: Annotated[str | None, typer.Option(help="Such as source,norm,law; all of the preset by default.")] = None,
    seeds: Annotated[str, typer.Option(help="Such as 1 or 1,2,3 or 1-5.")] = "1",
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting: law.tau=0.6, stream.severity=3, step.precision=float32 (all methods)."),
    ] = None,
    network: Annotated[
        str | None, typer.Option(help="Other weights than the preset's: a name, a file, or embedded.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Images a domain; all of them by default.")] = None,
    out: Annotated[Path, typer.Option(help="The folder the records go to.")] = Path("runs"),
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, …")] = "auto",
    data_dir: Annotated[Path | None, typer.Option(help="Where the data lies; DRIFTLAW_DATA by default.")] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Run even where a finished record is there; it is replaced.")
    ] = False,
    checkpoint_seconds: Annotated[float, typer.Option(help="How much work a kill may cost.")] = 30.0,
    measures: Annotated[
        str | None, typer.Option(help="More than error, with commas: calibration, forgetting, drift.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would run, and stop.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
) -> None:
    """Run methods on a stream and print their errors; a record is written for each method and seed.

    A killed run goes on from its last checkpoint when the same command is given again, and ends in the same record.

    Methods that need the training data are handed the train split of the stream's dataset, or of the one that
    --set stream.source names.

    Such as

    driftlaw run embedded --methods source,norm,law --limit 400

    driftlaw run cifar10-c --seeds 1-3 --device cuda --set law.learning_rate=5e-4
    """
    from driftlaw.experiments import plan_run

    cells = plan_run(
        preset,
        assignments=set_ or [],
        limit=limit,
        methods=methods,
        seeds=seeds,
        measures=names(measures),
        network=network,
    )
    if dry_run:
        _print_plan(cells, out, as_json)
        return
    records = _run_all(cells, out, device, data_dir, again=again, checkpoint_seconds=checkpoint_seconds)
    if as_json:
        print(json.dumps({"runs": [summary(record) for record in records]}))
    else:
        print_table(records)


def _run_all(cells: Sequence[Cell], out: Path, device: str, data_dir: Path | None, **how: Any) -> list[RunRecord]:
    """Run every cell; what is wrong with any of them is found before the first one starts."""
    from driftlaw.cli.console import command_line, progress_bar
    from driftlaw.experiments import Workbench
    from driftlaw.hardware import pick_device

    bench = Workbench(pick_device(device), data_dir)
    bench.check(cells)
    records = []
    with progress_bar() as bar:
        for cell in cells:
            task = bar.add_task(f"{cell.method:>8} seed {cell.seed}", total=None)
            record = bench.run(
                cell,
                out,
                command=command_line(),
                started=lambda steps, task=task: bar.update(task, total=steps),
                progress=lambda line, task=task: bar.update(task, completed=line["batch"] + 1),
                **how,
            )
            bar.update(task, total=len(record.batches), completed=len(record.batches))
            records.append(record)
    return records


def names(text: str | None) -> list[str]:
    """Read names with commas: ``source, law``."""
    return [name.strip() for name in text.split(",") if name.strip()] if text else []


def _print_plan(cells: Sequence[Cell], out: Path, as_json: bool) -> None:
    told = [
        {"method": cell.method, "seed": cell.seed, "settings": cell.settings, "record": str(cell.sink(out))}
        for cell in cells
    ]
    first = cells[0]
    if as_json:
        print(json.dumps({"stream": first.stream, "source": first.source, "model": first.model, "cells": told}))
        return
    print(f"stream: {first.stream}\nmodel:  {first.model}")
    for cell in told:
        print(f"{cell['method']} seed {cell['seed']} {cell['settings']} -> {cell['record']}")


def summary(record: RunRecord) -> dict[str, Any]:
    """Return a run as plain data, for ``--json``."""
    return {
        "method": record.method,
        "seed": record.seed,
        "mean_error": round(record.mean_error, 4),
        "error_by_domain": {name: round(error, 4) for name, error in record.error_by_domain.items()},
        "seconds_per_step": record.seconds_per_step,
        "record": str(record.path),
    }


def print_table(records: Sequence[RunRecord]) -> None:
    """Print the tables of some records with what they measured beside error, and where the records are."""
    from rich.console import Console

    from driftlaw.reports import render_terminal
    from driftlaw.reports.columns import COLUMN_FOR_METRIC

    measured = {name for record in records for name in record.header.get("measures", {})}
    columns = [column for name, column in COLUMN_FOR_METRIC.items() if name in measured]
    Console().print(render_terminal(records, ("error", *columns, "ms", "flops") if columns else ()))
    folders = {str(record.path.parent) for record in records if record.path}
    print(
        f"records in {', '.join(sorted(folders))}; `driftlaw report {' '.join(sorted(folders))}` makes a page of them"
    )
