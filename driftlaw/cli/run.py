"""``driftlaw run``: a benchmark, some methods, some seeds; a record each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from torch import nn

    from driftlaw.contract import Adapter
    from driftlaw.ingredients.source_data import SourceData
    from driftlaw.records import RunRecord
    from driftlaw.streams import CorruptedStream


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

    Methods that need the training data are handed the train split of the stream's dataset, or of the one that
    --set stream.source names.

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
        self.source = self.stream.pop("source", None)
        if limit is not None:
            self.stream["limit"] = limit
        self.model = merge(tables.get("model", {}), changes.pop("model", {}))
        if "weights" not in self.model:
            raise UsageError(
                f"the preset {preset} names no weights: add them under [model], or --set model.weights=PATH"
            )
        self.methods = methods.split(",") if methods else list(tables.get("methods", {})) or list_methods()
        common = merge(tables.get("step", {}), changes.pop("step", {}))
        for name in [*self.methods, *changes]:
            if name not in list_methods():
                valid = list_methods()
                raise unknown("method", name, valid if name in self.methods else [*valid, "step", "stream", "model"])
        self.settings = {
            name: merge(merge(common, tables.get("methods", {}).get(name, {})), changes.get(name, {}))
            for name in self.methods
        }
        self.seeds = _parse_seeds(seeds)
        self._check_source_exists()

    @property
    def cells(self) -> list[tuple[str, int]]:
        """Every method with every seed."""
        return [(method, seed) for method in self.methods for seed in self.seeds]

    def sink(self, out: Path, method: str, seed: int) -> Path:
        """Return where the record of a cell goes: its name tells cells of different settings apart."""
        from driftlaw.records.jsonl import content_hash

        parts = [self.stream, self.model, self.settings[method]]
        if self.source and self._needs_source(method):
            parts.append(self.source)
        told_apart = content_hash(parts)[:8]
        return out / f"{self.preset}-{method}-seed{seed}-{told_apart}.jsonl"

    def run_all(self, out: Path, device_name: str, *, again: bool, checkpoint_seconds: float) -> list[RunRecord]:
        """Run every cell; what is wrong with any of them is found before the first one starts."""
        import torch

        from driftlaw import loop
        from driftlaw.cli.console import command_line, progress_bar
        from driftlaw.models import load_model
        from driftlaw.probes import pick_device
        from driftlaw.streams import make_stream

        device = pick_device(device_name)
        model = load_model(self.model["weights"], folder=self.data_dir)
        model = model.to(device, memory_format=torch.channels_last)
        source = self._check(model)
        records, stream = [], None
        with progress_bar() as bar:
            for method, seed in self.cells:
                sink = self.sink(out, method, seed)
                if again:
                    sink.unlink(missing_ok=True)
                stream = make_stream(self.stream, data_dir=self.data_dir, device=device, like=stream, seed=seed)
                adapter = self._adapter(method, model, source, seed=seed)
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

    def _check(self, model: nn.Module) -> SourceData | None:
        """Raise where network, stream and methods do not go together; return the training data if one needs it."""
        from driftlaw.errors import UsageError
        from driftlaw.streams import make_stream

        stream = make_stream(self.stream, data_dir=self.data_dir)
        source = self._load_source(stream)
        for method in self.methods:
            self._adapter(method, model, source)
        answered = getattr(model, "info", {}).get("num_classes", stream.num_classes)
        if answered != stream.num_classes:
            raise UsageError(
                f"the network answers {answered} classes, the stream has {stream.num_classes}: take other weights"
            )
        return source

    def _adapter(self, method: str, model: nn.Module, source: SourceData | None, *, seed: int = 0) -> Adapter:
        from driftlaw.adapters import make_adapter

        needed = source if self._needs_source(method) else None
        return make_adapter(method, model, self.settings[method], seed=seed, source=needed)

    # --- the training data, for methods that need it -------------------------------------------------------------

    def _needs_source(self, method: str) -> bool:
        from driftlaw.adapters import registered_methods

        return registered_methods()[method].needs_source

    @property
    def source_dataset(self) -> str:
        """The dataset whose train split is the source: what an archive was made from, where the stream is one."""
        from driftlaw.datasets import ARCHIVES
        from driftlaw.streams import StreamSettings

        name = self.source or self.stream.get("dataset", StreamSettings().dataset)
        return ARCHIVES[name].dataset if name in ARCHIVES else name

    def _check_source_exists(self) -> None:
        """Refuse methods that need training data where the dataset has none, before anything is read."""
        from driftlaw.datasets import dataset_info
        from driftlaw.errors import UsageError

        needy = [method for method in self.methods if self._needs_source(method)]
        name = self.source_dataset
        if needy and (name.startswith("archive:") or "train" not in dataset_info(name).splits):
            raise UsageError(
                f"the training data is needed by {', '.join(needy)}, and {name} has none: name the dataset that the "
                "network was trained on, such as --set stream.source=cifar10, or take source-free methods alone"
            )

    def _load_source(self, stream: CorruptedStream) -> SourceData | None:
        """Return the training data, if a method needs it and it goes with the stream."""
        from driftlaw.datasets import load_dataset
        from driftlaw.errors import DataError, collected
        from driftlaw.ingredients.cached import cache_folder
        from driftlaw.ingredients.source_data import SourceData

        needy = [method for method in self.methods if self._needs_source(method)]
        if not needy:
            return None
        try:
            images = load_dataset(self.source_dataset, data_dir=self.data_dir, split="train")
        except DataError as error:
            others = ",".join(method for method in self.methods if method not in needy) or "law"
            raise DataError(f"{error}. {', '.join(needy)} need it; without them: --methods {others}") from error
        facts = {
            "classes": (images.num_classes, stream.num_classes),
            "image size": (images.image_shape, stream.source.image_shape),
        }
        problems = [f"{name}: {own} against the stream's {its}" for name, (own, its) in facts.items() if own != its]
        if problems:
            heading = f"the training data {self.source_dataset} does not go with the stream (--set stream.source=NAME):"
            raise collected(heading, problems)
        return SourceData(images, cache_folder(self.data_dir))


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
        print(json.dumps({"stream": plan.stream, "source": plan.source, "model": plan.model, "cells": cells}))
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
