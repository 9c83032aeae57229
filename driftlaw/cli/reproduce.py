"""``driftlaw reproduce``: runs one of the paper's experiments and prints its table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from driftlaw.cli import options as opt
from driftlaw.cli.console import echo
from driftlaw.cli.run import PARTIAL, print_folders, summary
from driftlaw.errors import printable

if TYPE_CHECKING:
    from driftlaw.experiments import RunSpec
    from driftlaw.experiments.plan import ExecutionPlan
    from driftlaw.records import RunRecord

STATES = {"finished": "there", "reusable": "copied", "skipped": "left out", "to run": "to run"}  # names in the output


def reproduce(
    name: Annotated[
        str, typer.Argument(help="table1 to table10, fig1a, fig1b, fig3, fig4, fig5 or stress.", show_default=False)
    ],
    datasets: Annotated[
        str | None,
        typer.Option(help="Comma-separated benchmarks: cifar10-c,imagenet-c (default: the paper's)."),
    ] = None,
    methods: Annotated[
        str | None, typer.Option(help="Comma-separated method names (default: all of the experiment).")
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="Seeds: 1, 1,2,3 or 1-5 (default: as many as the paper).")] = None,
    limit: Annotated[
        int | None, typer.Option(help="Maximum number of images per domain (default: the benchmark's).")
    ] = None,
    device: opt.Device = "auto",
    out: Annotated[Path, typer.Option(help="Folder for the records, which are written to NAME/DATASET in it.")] = Path(
        "results"
    ),
    jobs: opt.Jobs = 1,
    on: opt.On = None,
    model: opt.Network = None,
    metrics: opt.Metrics = None,
    compress: Annotated[bool, typer.Option("--compress", help="Compress finished records to .jsonl.gz.")] = False,
    data_dir: opt.DataDir = None,
    overwrite: opt.Overwrite = False,
    checkpoint_seconds: opt.CheckpointSeconds = 30.0,
    dry_run: opt.DryRun = False,
    as_json: opt.AsJson = False,
) -> None:
    """Run one of the paper's experiments and print its table.

    Finished runs are reused, also from other experiments; interrupted runs resume. Runs whose data or weights are
    missing are skipped, with instructions for getting them, and the command exits with code 3.

    If CIFAR-10-C is not available at all, the experiment runs on the small embedded dataset and model instead; those
    numbers cannot be compared with the paper.

    LAW gets a second row if `driftlaw tune` has written OUT/tuning/DATASET.json (with --network: DATASET-NETWORK.json).

    For example:

    driftlaw reproduce table1 --datasets cifar10-c --limit 200 --seeds 1 --methods source,norm,law

    driftlaw reproduce table1 --device cuda --jobs 3 --compress
    """
    from driftlaw.cli.console import RunProgress, command_line, progress_bar
    from driftlaw.errors import DataError, UsageError
    from driftlaw.experiments import RunOptions, parse_seeds, plan_experiment
    from driftlaw.experiments.assets import AssetInventory
    from driftlaw.experiments.paper import find_experiment
    from driftlaw.experiments.plan import copy_reusable_records, plan_execution
    from driftlaw.experiments.runners import run_all
    from driftlaw.hardware import pick_device
    from driftlaw.records import compress_record, read_record

    if on and jobs > 1:
        raise UsageError(
            "--jobs is for runs on this machine. With --on, Ray decides how many runs it executes at once."
        )
    experiment, inventory = find_experiment(name), AssetInventory(data_dir)
    specs = plan_experiment(
        name,
        datasets=opt.split_names(datasets) or None,
        methods=opt.split_names(methods) or None,
        seeds=parse_seeds(seeds or experiment.seeds),
        limit=limit,
        tuning=out / "tuning",
        model=model,
        sha256_of=lambda weights: inventory.model(weights).sha256,
        metrics=opt.split_names(metrics),
    )
    plan = plan_execution(specs, out, inventory, model=model, overwrite=overwrite)
    _print_preview(plan)
    if dry_run:
        _print_plan(plan, as_json)
        return
    options = RunOptions(
        out,
        device if on else str(pick_device(device)),
        data_dir,
        overwrite=overwrite,
        compress=compress,
        command=command_line(),
        checkpoint_seconds=checkpoint_seconds,
    )
    copy_reusable_records(plan)
    to_run, results = plan.specs("to run"), []
    if to_run:
        with progress_bar() as bar:
            results = run_all(to_run, options, RunProgress(bar, to_run, inventory.cost), jobs=jobs, on=on)
    failed, skipped = [result for result in results if result.problem], plan.specs("skipped")
    paths = {run.spec.file_name: run.record.path for run in plan.runs if run.record}
    paths |= {result.spec.file_name: result.record for result in results}
    records = [
        (run.spec, read_record(compress_record(path) if compress else path))
        for run in plan.runs
        if (path := paths.get(run.spec.file_name))
    ]
    if not records:
        raise DataError(f"No run of {name} was possible. The messages above say what is missing.")
    if as_json:
        document = {
            "experiment": experiment.name,
            "title": experiment.title,
            "runs": [{"dataset": spec.preset, "label": spec.label, **summary(record)} for spec, record in records],
            "failed": [{"cell": result.spec.file_name, "reason": result.problem} for result in failed],
        }
        print(json.dumps(document | _skipped_as_json(plan)))
    else:
        _print_tables(name, experiment.title, records)
    if failed or skipped:
        counts = f"{len(failed)} runs failed, {len(skipped)} were skipped"
        echo(f"driftlaw: The table is incomplete: {counts}. The messages above give the reasons.", err=True)
        raise typer.Exit(PARTIAL)


def _print_preview(plan: ExecutionPlan) -> None:
    """Print fallbacks, skipped runs and the number of finished runs on stderr."""
    from driftlaw.cli.console import is_quiet

    for line in plan.fallbacks:
        echo(f"driftlaw: ! {line}", err=True)
    for reason, specs in plan.skipped_by_reason().items():
        rows = list(dict.fromkeys(f"{spec.preset} {spec.method} {spec.label}".strip() for spec in specs))
        shown = ", ".join(rows[:4]) + (f" and {len(rows) - 4} more rows" if len(rows) > 4 else "")
        count = f"{len(specs)} {'run' if len(specs) == 1 else 'runs'}"
        echo(f"driftlaw: ! skipped {count} ({shown}): {reason}", err=True)
    finished = sum(run.record is not None for run in plan.runs)
    if finished and not is_quiet():
        echo(f"{finished} of {len(plan.runs)} runs are already finished", err=True)


def _print_plan(plan: ExecutionPlan, as_json: bool) -> None:
    rows = []
    for run in plan.runs:
        spec, state = run.spec, STATES[run.state]
        record = str(run.record.path if run.record and run.state == "finished" else run.target)
        if not as_json:
            echo(f"{state:>8}  {spec.title} -> {record}")
        keys = ("method", "label", "seed", "settings", "stream", "model")
        row = {"dataset": spec.preset} | {key: getattr(spec, key) for key in keys}
        rows.append(row | {"record": record, "state": state})
    if as_json:
        print(json.dumps({"cells": rows} | _skipped_as_json(plan)))


def _skipped_as_json(plan: ExecutionPlan) -> dict[str, Any]:
    skipped = plan.skipped_by_reason().items()
    return {
        "left_out": [{"reason": reason, "cells": [spec.file_name for spec in specs]} for reason, specs in skipped],
        "stood_in": plan.fallbacks,
    }


def _print_tables(name: str, title: str, records: Sequence[tuple[RunSpec, RunRecord]]) -> None:
    """Print one table per benchmark, each with the paper's means next to ours."""
    from rich.console import Console

    from driftlaw.reports import render_terminal

    console, number = Console(), int(name.removeprefix("table")) if name.startswith("table") else None
    for preset in dict.fromkeys(spec.preset for spec, _ in records):
        group = [record for spec, record in records if spec.preset == preset]
        console.print(printable(f"{name}, {preset}: {title}"), style="bold", markup=False, highlight=False)
        console.print(render_terminal(group, paper_table=number))
    print_folders([record for _, record in records])
