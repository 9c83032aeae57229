"""``driftlaw run``: a benchmark, some methods, some seeds; a record each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from torch import nn

    from driftlaw.records import RunRecord


def run(
    preset: Annotated[
        str, typer.Argument(help="A name of `driftlaw list presets`, or a TOML file of your own.")
    ] = "embedded",
    methods: Annotated[str | None, typer.Option(help="Such as source,norm,law; all of the preset by default.")] = None,
    seeds: Annotated[str, typer.Option(help="Such as 1 or 1,2,3 or 1-5.")] = "1",
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="A setting: law.tau=0.6, stream.severity=3, model.weights=PATH.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Images a domain; all of them by default.")] = None,
    out: Annotated[Path, typer.Option(help="The folder the records go to.")] = Path("runs"),
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, …")] = "auto",
    data_dir: Annotated[Path | None, typer.Option(help="Where the data lies; DRIFTLAW_DATA by default.")] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Run even where a finished record is there; it is replaced.")
    ] = False,
    checkpoint_seconds: Annotated[float, typer.Option(help="How much work a kill may cost.")] = 30.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would run, and stop.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
) -> None:
    """Run methods on a stream and print their errors; a record is written for each method and seed.

    A killed run goes on from its last checkpoint when the same command is given again, and ends in the same record.

    Such as

    driftlaw run embedded --methods source,norm,law --limit 400

    driftlaw run cifar10-c --seeds 1-3 --device cuda --set law.learning_rate=5e-4
    """
    plan = _Plan(preset, set_ or [], limit, methods, seeds, data_dir)
    if dry_run:
        _print_plan(plan, out, as_json)
        return
    records = plan.run_all(out, device, again=again, checkpoint_seconds=checkpoint_seconds)
    if as_json:
        print(json.dumps({"runs": [_summary(record) for record in records]}))
    else:
        _print_table(records)


class _Plan:
    """What a command asks for: the stream, the weights, and the cells (method, its settings, seed)."""

    def __init__(
        self,
        preset: str,
        assignments: list[str],
        limit: int | None,
        methods: str | None,
        seeds: str,
        data_dir: Path | None,
    ) -> None:
        from driftlaw.adapters import list_methods
        from driftlaw.errors import UsageError, unknown
        from driftlaw.settings import merge, parse_assignments, read_preset

        tables = read_preset(preset)
        changes = parse_assignments(assignments)
        for name, table in changes.items():
            if not isinstance(table, dict):
                raise UsageError(f"--set {name}={table}: expected one of its settings, such as {name}.SETTING={table}")
        self.data_dir = data_dir
        self.preset = Path(preset).stem
        self.stream = merge(tables.get("stream", {}), changes.pop("stream", {}))
        if limit is not None:
            self.stream["limit"] = limit
        self.model = merge(tables.get("model", {}), changes.pop("model", {}))
        if "weights" not in self.model:
            raise UsageError(
                f"the preset {preset} names no weights: add them under [model], or --set model.weights=PATH"
            )
        self.methods = methods.split(",") if methods else list(tables.get("methods", {})) or list_methods()
        for name in [*self.methods, *changes]:
            if name not in list_methods():
                valid = list_methods()
                raise unknown("method", name, valid if name in self.methods else [*valid, "stream", "model"])
        self.settings = {
            name: merge(tables.get("methods", {}).get(name, {}), changes.get(name, {})) for name in self.methods
        }
        self.seeds = _parse_seeds(seeds)

    @property
    def cells(self) -> list[tuple[str, int]]:
        """Every method with every seed."""
        return [(method, seed) for method in self.methods for seed in self.seeds]

    def sink(self, out: Path, method: str, seed: int) -> Path:
        """Return where the record of a cell goes: its name tells cells of different settings apart."""
        from driftlaw.records.jsonl import content_hash

        told_apart = content_hash([self.stream, self.model, self.settings[method]])[:8]
        return out / f"{self.preset}-{method}-seed{seed}-{told_apart}.jsonl"

    def run_all(self, out: Path, device_name: str, *, again: bool, checkpoint_seconds: float) -> list[RunRecord]:
        """Run every cell; what is wrong with any of them is found before the first one starts."""
        import torch

        from driftlaw import loop
        from driftlaw.adapters import make_adapter
        from driftlaw.cli.console import command_line, progress_bar
        from driftlaw.models import load_model
        from driftlaw.probes import pick_device
        from driftlaw.streams import make_stream

        device = pick_device(device_name)
        model = load_model(self.model["weights"], folder=self.data_dir)
        model = model.to(device, memory_format=torch.channels_last)
        self._check(model)
        records, stream = [], None
        with progress_bar() as bar:
            for method, seed in self.cells:
                sink = self.sink(out, method, seed)
                if again:
                    sink.unlink(missing_ok=True)
                stream = make_stream(self.stream, data_dir=self.data_dir, device=device, like=stream, seed=seed)
                adapter = make_adapter(method, model, self.settings[method], seed=seed)
                task = bar.add_task(f"{method:>8} seed {seed}", total=len(stream))
                record = loop.run(
                    stream,
                    adapter,
                    reset_on=stream.reset_on,
                    sink=sink,
                    command=command_line(),
                    checkpoint_seconds=checkpoint_seconds,
                    progress=lambda line, task=task: bar.update(task, completed=line["batch"] + 1),
                )
                bar.update(task, completed=len(stream))
                records.append(record)
        return records

    def _check(self, model: nn.Module) -> None:
        from driftlaw.adapters import make_adapter
        from driftlaw.errors import UsageError
        from driftlaw.streams import make_stream

        for method in self.methods:
            make_adapter(method, model, self.settings[method])
        stream = make_stream(self.stream, data_dir=self.data_dir)
        answered = getattr(model, "info", {}).get("num_classes", stream.num_classes)
        if answered != stream.num_classes:
            raise UsageError(
                f"the network answers {answered} classes, the stream has {stream.num_classes}: take other weights"
            )


def _parse_seeds(text: str) -> list[int]:
    """Read ``1``, ``1,2,3`` or ``1-5``.

    >>> _parse_seeds("1-3,7")
    [1, 2, 3, 7]
    """
    from driftlaw.errors import UsageError

    seeds: list[int] = []
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        if not low.isdigit() or (dash and not high.isdigit()):
            raise UsageError(f"--seeds {text}: expected numbers such as 1 or 1,2,3 or 1-5")
        seeds += range(int(low), int(high if dash else low) + 1)
    return seeds


def _print_plan(plan: _Plan, out: Path, as_json: bool) -> None:
    cells: list[dict[str, Any]] = [
        {"method": method, "seed": seed, "settings": plan.settings[method], "record": str(plan.sink(out, method, seed))}
        for method, seed in plan.cells
    ]
    if as_json:
        print(json.dumps({"stream": plan.stream, "model": plan.model, "cells": cells}))
        return
    print(f"stream: {plan.stream}\nmodel:  {plan.model}")
    for cell in cells:
        print(f"{cell['method']} seed {cell['seed']} {cell['settings']} -> {cell['record']}")


def _summary(record: RunRecord) -> dict[str, Any]:
    return {
        "method": record.method,
        "seed": record.seed,
        "mean_error": round(record.mean_error, 4),
        "error_by_domain": {name: round(error, 4) for name, error in record.error_by_domain.items()},
        "seconds_per_step": record.seconds_per_step,
        "record": str(record.path),
    }


def _print_table(records: list[RunRecord]) -> None:
    from rich.console import Console

    from driftlaw.reports import render_terminal

    Console().print(render_terminal(records))
    folders = {str(record.path.parent) for record in records if record.path}
    print(
        f"records in {', '.join(sorted(folders))}; `driftlaw report {' '.join(sorted(folders))}` makes a page of them"
    )
