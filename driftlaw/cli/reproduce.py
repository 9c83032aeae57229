"""``driftlaw reproduce``: a table or figure of the paper from one command."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from driftlaw.cli.run import names, summary

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.progress import Progress, TaskID

    from driftlaw.experiments import Cell
    from driftlaw.experiments.assets import Stock
    from driftlaw.experiments.plan import Prospect
    from driftlaw.experiments.runners import Outcome
    from driftlaw.records import RunRecord

PARTIAL = 3


def reproduce(
    name: Annotated[
        str, typer.Argument(help="table1 to table10, fig1a, fig1b, fig3, fig4, fig5 or stress.", show_default=False)
    ],
    datasets: Annotated[
        str | None, typer.Option(help="Such as cifar10-c,imagenet-c; those of the paper by default.")
    ] = None,
    methods: Annotated[str | None, typer.Option(help="Such as source,norm,law; all of the table by default.")] = None,
    seeds: Annotated[
        str | None, typer.Option(help="Such as 1 or 1,2,3 or 1-5; as many as the paper takes by default.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Images a domain; the benchmark's own number by default.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, …")] = "auto",
    out: Annotated[Path, typer.Option(help="The folder; records go to its NAME/DATASET.")] = Path("results"),
    jobs: Annotated[
        int, typer.Option(min=1, help="How many cells at a time, in processes of their own, as memory allows.")
    ] = 1,
    network: Annotated[
        str | None, typer.Option(help="Other weights for every cell: a name, a file, or embedded.")
    ] = None,
    measures: Annotated[
        str | None, typer.Option(help="More than error, with commas: calibration, forgetting, drift.")
    ] = None,
    compress: Annotated[bool, typer.Option("--compress", help="Leave finished records as .jsonl.gz.")] = False,
    data_dir: Annotated[Path | None, typer.Option(help="Where the data lies; DRIFTLAW_DATA by default.")] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Run even where a finished record is there; it is replaced.")
    ] = False,
    checkpoint_seconds: Annotated[float, typer.Option(help="How much work a kill may cost.")] = 30.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would run, and stop.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
) -> None:
    """Run the cells of a table or figure of the paper that have no record yet, and print the table.

    Cells whose record is there are skipped; the same cell's record in the folder of another experiment is copied. A
    killed command goes on when it is given again. What cannot be run for lack of data or weights is left out, with a
    word on how to get it (exit code 3); where nothing of CIFAR-10-C is at hand, the embedded network and images stand
    in for it. LAW gets a second row where `driftlaw tune` has written OUT/tuning/DATASET.json, with
    --network DATASET-NETWORK.json.

    Such as

    driftlaw reproduce table1 --datasets cifar10-c --limit 200 --seeds 1 --methods source,norm,law

    driftlaw reproduce table1 --device cuda --jobs 3 --compress
    """
    from driftlaw.errors import DataError
    from driftlaw.experiments import parse_seeds, plan_experiment
    from driftlaw.experiments.assets import Stock
    from driftlaw.experiments.paper import find_experiment
    from driftlaw.experiments.plan import prepare

    experiment, stock = find_experiment(name), Stock(data_dir)
    cells = plan_experiment(
        name,
        datasets=names(datasets) or None,
        methods=names(methods) or None,
        seeds=parse_seeds(seeds or experiment.seeds),
        limit=limit,
        tuning=out / "tuning",
        network=network,
        sha256_of=lambda weights: stock.network(weights).sha256,
        measures=names(measures),
    )
    prospect = prepare(cells, out, stock, network=network, again=again)
    _tell(prospect)
    if dry_run:
        _print_prospect(prospect, out, as_json)
        return
    how = {"again": again, "compress": compress, "checkpoint_seconds": checkpoint_seconds}
    failed = _run(prospect, out, stock, device, jobs, data_dir=data_dir, **how)
    records = _records(prospect, out, compress)
    if not records:
        raise DataError(f"nothing of {name} could be run: what is missing is told above")
    if as_json:
        print(json.dumps(_as_plain(experiment.name, experiment.title, prospect, records, failed)))
    else:
        _print_tables(name, experiment.title, records)
    if failed or prospect.left_out:
        _tell_partial(failed, len(prospect.left_out))
        raise typer.Exit(PARTIAL)


def _run(prospect: Prospect, out: Path, stock: Stock, device: str, jobs: int, **orders: Any) -> list[Outcome]:
    """Run what is to be run; return what went wrong."""
    from driftlaw.cli.console import command_line, progress_bar
    from driftlaw.experiments.plan import bring_borrowed
    from driftlaw.experiments.runners import Orders, run_cells, share_of_threads
    from driftlaw.hardware import pick_device

    chosen = pick_device(device)
    bring_borrowed(prospect)
    if not prospect.to_run:
        return []
    # By what was asked for, not by how many cells are left: a cell goes on with as many threads as it began with.
    threads = share_of_threads(jobs) if jobs > 1 else 0
    how = Orders(out=out, device=str(chosen), command=command_line(), threads=threads, **orders)
    with progress_bar() as bar:
        outcomes = run_cells(prospect.to_run, how, _Show(bar, prospect.to_run, stock), jobs=jobs)
    return [outcome for outcome in outcomes if outcome.problem]


class _Show:
    """Shows a bar a cell under way and one for all of them; writes a line for every cell that has ended."""

    def __init__(self, bar: Progress, cells: Sequence[Cell], stock: Stock) -> None:
        self.bar, self.began = bar, time.monotonic()
        self.work = {cell.sink(Path()): stock.work(cell) for cell in cells}
        self.done = dict.fromkeys(self.work, 0.0)
        self.tasks: dict[Path, TaskID] = {}
        self.steps: dict[Path, int] = {}
        self.all = bar.add_task("all cells", total=sum(self.work.values()))
        self.ended_cells = 0

    def started(self, cell: Cell, steps: int) -> None:
        """Open the bar of a cell."""
        key = cell.sink(Path())
        self.steps[key] = steps
        self.tasks[key] = self.bar.add_task(cell.title, total=steps)

    def stepped(self, cell: Cell, done: int) -> None:
        """Move the bars on."""
        key = cell.sink(Path())
        self.bar.update(self.tasks[key], completed=done)
        self._set(key, done / self.steps[key])

    def ended(self, outcome: Outcome) -> None:
        """Close the bar of a cell and say how it ended."""
        from driftlaw.cli.console import is_quiet

        key = outcome.cell.sink(Path())
        self._set(key, 1.0)
        if key in self.tasks:
            self.bar.remove_task(self.tasks.pop(key))
        self.ended_cells += 1
        told = f"[{self.ended_cells}/{len(self.work)}] {outcome.cell.title}: {self._how(outcome)}{self._left()}"
        if outcome.problem or not is_quiet():
            self.bar.console.print(told, markup=False, highlight=False, soft_wrap=True)

    def _set(self, key: Path, share: float) -> None:
        self.done[key] = share * self.work[key]
        self.bar.update(self.all, completed=sum(self.done.values()))

    def _how(self, outcome: Outcome) -> str:
        from driftlaw.records import read_record

        if outcome.record is None:
            return f"failed: {outcome.problem}"
        record = read_record(outcome.record)
        seconds = record.closing["timing"]["seconds"] if record.closing else 0.0
        return f"{record.mean_error:.2f} % error, {_duration(seconds)}"

    def _left(self) -> str:
        """Return how long the rest will take if it goes on as it has gone so far."""
        done, whole = sum(self.done.values()), sum(self.work.values())
        if done >= whole or not done:
            return ""
        return f"; about {_duration((time.monotonic() - self.began) * (whole - done) / done)} left"


def _duration(seconds: float) -> str:
    """Return seconds in words.

    >>> _duration(3.21), _duration(200), _duration(8000)
    ('3.2 s', '3 min', '2.2 h')
    """
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


# --- what a person or a program is told ------------------------------------------------------------------------------


def _tell(prospect: Prospect) -> None:
    """Say what is stood in for, what is left out and what is there already."""
    from driftlaw.cli.console import is_quiet

    for line in prospect.stood_in:
        typer.echo(f"driftlaw: ! {line}", err=True)
    for reason, cells in prospect.reasons().items():
        typer.echo(f"driftlaw: ! left out, {_counted(cells)}: {reason}", err=True)
    there = len(prospect.finished) + len(prospect.borrowed)
    if there and not is_quiet():
        typer.echo(f"{there} of {len(prospect.cells)} cells have their record already", err=True)


def _tell_partial(failed: Sequence[Outcome], left_out: int) -> None:
    parts = [f"{len(failed)} failed"] if failed else []
    parts += [f"{left_out} left out"] if left_out else []
    typer.echo(f"driftlaw: the table is not whole, of its cells {' and '.join(parts)}; see above", err=True)


def _counted(cells: Sequence[Cell]) -> str:
    """Return which cells, short: every row once, with how many cells it has."""
    rows = list(dict.fromkeys(f"{cell.preset} {cell.method} {cell.label}".strip() for cell in cells))
    shown = ", ".join(rows[:4]) + (f" and {len(rows) - 4} more rows" if len(rows) > 4 else "")
    return f"{len(cells)} {'cell' if len(cells) == 1 else 'cells'} ({shown})"


def _print_prospect(prospect: Prospect, out: Path, as_json: bool) -> None:
    missing = {cell.sink(out) for cell, _ in prospect.left_out}
    cells = []
    for cell in prospect.cells:
        sink = cell.sink(out)
        there = "there" if sink in prospect.finished else "copied" if sink in prospect.borrowed else ""
        state = there or ("left out" if sink in missing else "to run")
        place = prospect.finished[sink].path if sink in prospect.finished else sink
        cells.append({**_cell(cell), "record": str(place), "state": state})
    if as_json:
        print(json.dumps({"cells": cells, "left_out": _left_out(prospect), "stood_in": prospect.stood_in}))
        return
    for told in cells:
        words = [told["dataset"], told["method"], told["label"], f"seed {told['seed']}"]
        print(f"{told['state']:>8}  {' '.join(word for word in words if word)} -> {told['record']}")


def _cell(cell: Cell) -> dict[str, Any]:
    return {
        "dataset": cell.preset,
        "method": cell.method,
        "label": cell.label,
        "seed": cell.seed,
        "settings": dict(cell.settings),
        "stream": dict(cell.stream),
        "model": dict(cell.model),
    }


def _left_out(prospect: Prospect) -> list[dict[str, Any]]:
    return [
        {"reason": reason, "cells": [cell.file_name for cell in cells]} for reason, cells in prospect.reasons().items()
    ]


def _records(prospect: Prospect, out: Path, compress: bool) -> list[tuple[Cell, RunRecord]]:
    """Return the finished records of all cells, compressed where that was asked for."""
    from driftlaw.records.compress import compress_record

    found = []
    for cell in prospect.cells:
        record = cell.finished_record(out)
        if record is not None and compress and record.path is not None:
            compress_record(record.path)
            record = cell.finished_record(out)
        if record is not None:
            found.append((cell, record))
    return found


def _as_plain(
    name: str,
    title: str,
    prospect: Prospect,
    records: Sequence[tuple[Cell, RunRecord]],
    failed: Sequence[Outcome],
) -> dict[str, Any]:
    return {
        "experiment": name,
        "title": title,
        "runs": [{"dataset": cell.preset, "label": cell.label, **summary(record)} for cell, record in records],
        "failed": [{"cell": outcome.cell.file_name, "reason": outcome.problem} for outcome in failed],
        "left_out": _left_out(prospect),
        "stood_in": prospect.stood_in,
    }


def _print_tables(name: str, title: str, records: Sequence[tuple[Cell, RunRecord]]) -> None:
    from rich.console import Console

    from driftlaw.reports import render_terminal

    console = Console()
    folders = []
    for preset in dict.fromkeys(cell.preset for cell, _ in records):
        group = [record for cell, record in records if cell.preset == preset]
        console.print(f"{name}, {preset}: {title}", style="bold", markup=False, highlight=False)
        number = int(name.removeprefix("table")) if name.startswith("table") else None
        console.print(render_terminal(group, paper_table=number))
        folders += _folders(group)
    places = " ".join(folders)
    print(f"records in {', '.join(folders)}; `driftlaw report {places}` makes a page of them")


def _folders(records: Iterable[RunRecord]) -> list[str]:
    return sorted({str(record.path.parent) for record in records if record.path})
