"""``driftlaw run``: runs methods on a benchmark and writes one record per method and seed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from driftlaw.cli import options as opt
from driftlaw.cli.console import echo

if TYPE_CHECKING:
    from driftlaw.experiments import RunSpec
    from driftlaw.records import RunRecord


PARTIAL = 3  # exit code if some runs failed


def run(
    preset: opt.Preset = "embedded",
    methods: opt.Methods = None,
    seeds: opt.Seeds = "1",
    set_: opt.Set = None,
    network: opt.Network = None,
    checkpoint: opt.Checkpoint = None,
    normalize: opt.Normalize = None,
    data: opt.Data = None,
    workers: opt.Workers = 0,
    limit: opt.Limit = None,
    out: Annotated[Path, typer.Option(help="Folder for the records.")] = Path("runs"),
    device: opt.Device = "auto",
    data_dir: opt.DataDir = None,
    on: opt.On = None,
    overwrite: opt.Overwrite = False,
    checkpoint_seconds: opt.CheckpointSeconds = 30.0,
    metrics: opt.Metrics = None,
    guard: Annotated[bool, typer.Option("--guard", help="Run all methods under the guard.")] = False,
    dry_run: opt.DryRun = False,
    as_json: opt.AsJson = False,
) -> None:
    """Run methods on a stream, print their errors and write one record per method and seed.

    Running the same command again resumes an interrupted run and reuses finished records. A record that was made with
    other weights or by an incompatible version is renamed to NAME.old, and the run starts again.

    Methods that need training data use the train split of the stream's dataset, or the dataset given with
    --set stream.train_data=NAME.

    For example:

    driftlaw run embedded --methods source,norm,law --limit 400

    driftlaw run cifar10-c --seeds 1-3 --device cuda --set law.learning_rate=5e-4

    driftlaw run cifar10-c --network mynet.py:make --checkpoint mynet.pth --methods source,law,mymethod.py

    driftlaw run --data photos/ --network my_network.safetensors --methods source,law

    driftlaw run --data 'shards/{000..049}.tar' --workers 2 --network my_network.safetensors --methods source,law

    driftlaw run cifar10-c --seeds 1-5 --on ray://cluster.example:10001

    torchrun --nproc-per-node 4 -m driftlaw run imagenet-c --methods law    (four processes share every batch)
    """
    from driftlaw.cli.console import RunProgress, command_line, progress_bar
    from driftlaw.cli.torchrun import end_group, rank, start_group
    from driftlaw.errors import UsageError
    from driftlaw.experiments import RunContext, RunOptions, plan_run
    from driftlaw.experiments.context import RunResult
    from driftlaw.experiments.runners import run_all
    from driftlaw.records import read_record

    if on and workers:
        raise UsageError("--workers is for runs on this machine. Omit it, or omit --on.")
    specs = plan_run(
        preset,
        data=data,
        assignments=opt.with_guard(set_, guard),
        limit=limit,
        methods=methods,
        seeds=seeds,
        metrics=opt.split_names(metrics),
        model=network,
        checkpoint=str(checkpoint) if checkpoint else None,
        normalize=normalize,
    )
    if dry_run:
        _print_plan(specs, out, as_json)
        return
    place, group = start_group("cpu" if on else device)
    if on and group is not None:
        raise UsageError("--on starts runs on a cluster, and torchrun starts ranks of one run. Omit one of them.")
    context = RunContext(place, data_dir, workers, group)
    context.check(specs)  # reports all errors before the first run starts
    options = RunOptions(
        out,
        device,
        data_dir,
        overwrite=overwrite,
        replace_incompatible=True,
        command=command_line(),
        checkpoint_seconds=checkpoint_seconds,
    )
    records, failed = [], []
    with progress_bar() as bar:
        progress = RunProgress(bar, specs, lambda spec: spec.step_cost)
        if on:
            results = run_all(specs, options, progress, on=on)
            records = [read_record(result.record) for result in results if result.record]
            failed = [result for result in results if result.problem]
        else:
            for spec in specs:
                records.append(context.run(spec, options, progress))
                if rank() == 0:  # which has written the record
                    progress.ended(RunResult(spec, records[-1].path))
    end_group()
    if rank() != 0:
        return
    if as_json:
        failures = [{"cell": result.spec.file_name, "reason": result.problem} for result in failed]
        document = {"runs": [summary(record) for record in records]}
        print(json.dumps(document | ({"failed": failures} if failures else {})))
    elif records:
        print_table(records)
    if failed:
        echo(f"driftlaw: {len(failed)} of {len(specs)} runs failed. The messages above give the reasons.", err=True)
        raise typer.Exit(PARTIAL if records else 1)


def _print_plan(specs: Sequence[RunSpec], out: Path, as_json: bool) -> None:
    first, rows = specs[0], []
    for spec in specs:
        record = str(spec.record_path(out))
        rows.append({"method": spec.method, "seed": spec.seed, "settings": spec.settings, "record": record})
    if as_json:
        print(json.dumps({"stream": first.stream, "source": first.train_data, "model": first.model, "cells": rows}))
        return
    echo(f"stream: {first.stream}\nmodel:  {first.model}")
    for row in rows:
        echo(f"{row['method']} seed {row['seed']} {row['settings']} -> {row['record']}")


def summary(record: RunRecord) -> dict[str, Any]:
    """Return a run as plain data, for ``--json``."""
    return {
        "method": record.method,
        "seed": record.seed,
        "mean_error": None if record.mean_error is None else round(record.mean_error, 4),
        "error_by_domain": {name: round(error, 4) for name, error in record.error_by_domain.items()},
        **record.iou_summary(digits=4),
        **({"not_finite": record.not_finite} if record.not_finite else {}),
        "seconds_per_step": record.seconds_per_step,
        "record": str(record.path),
    }


def print_table(records: Sequence[RunRecord]) -> None:
    """Print a table of records with their extra metrics."""
    from rich.console import Console

    from driftlaw.reports import render_terminal
    from driftlaw.reports.columns import measured_columns

    columns = measured_columns(records)
    Console().print(render_terminal(records, ("error", *columns, "ms", "flops") if columns else ()))
    print_folders(records)


def print_folders(records: Sequence[RunRecord]) -> None:
    """Print where records are stored, and the command that makes a report of them."""
    folders = sorted({str(record.path.parent) for record in records if record.path})
    echo(f"Records are in {', '.join(folders)}. `driftlaw report {' '.join(folders)}` makes a report of them.")
