"""``driftlaw tune``: settings chosen on the four held-out corruptions, never on the fifteen that are reported."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.progress import Progress

    from driftlaw.experiments.context import Workbench
    from driftlaw.experiments.run_spec import Cell
    from driftlaw.experiments.tuning import Outcome, Tuning
    from driftlaw.records import RunRecord


def tune(
    preset: Annotated[str, typer.Argument(help="A name of `driftlaw list presets`, or a TOML file of your own.")],
    method: Annotated[str, typer.Option(help="Whose settings are tuned.")] = "law",
    grid: Annotated[
        list[str] | None,
        typer.Option(help="A setting and its values: tau=0.6,0.8,1.0. For law, values around the preset's by default."),
    ] = None,
    search: Annotated[
        str, typer.Option(help="coordinate: one setting at a time, two rounds; grid: every combination.")
    ] = "coordinate",
    choose: Annotated[
        str,
        typer.Option(
            help="lowest: who errs least; gentlest: the smallest learning rate of those that cannot be told from it."
        ),
    ] = "lowest",
    seeds: Annotated[str, typer.Option(help="Such as 1 or 1-3; an error is the mean over them.")] = "1",
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="A setting that stays: law.grouping=module, stream.severity=3.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Images a domain; all of them by default.")] = None,
    rounds: Annotated[
        int,
        typer.Option(
            min=1, help="How often a continual stream of the four comes round; 4 is about as long as fifteen."
        ),
    ] = 4,
    network: Annotated[
        str | None, typer.Option(help="Other weights than the preset's: a name, a file, or embedded.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder that PRESET.json and the records go to.")] = Path(
        "results/tuning"
    ),
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, …")] = "auto",
    data_dir: Annotated[Path | None, typer.Option(help="Where the data lies; DRIFTLAW_DATA by default.")] = None,
    checkpoint_seconds: Annotated[float, typer.Option(help="How much work a kill may cost.")] = 30.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was tried as one JSON document.")] = False,
) -> None:
    """Choose a method's settings on the held-out corruptions, and write what was tried to OUT/PRESET.json.

    With --network the file is OUT/PRESET-NETWORK.json, which `driftlaw reproduce --network` reads.

    Speckle noise, Gaussian blur, spatter and saturate are looked at, in a continual stream as the preset makes it. A
    stream with any of the fifteen corruptions that results are reported on is refused.

    A trial whose finished record is there is not run again: the same command goes on after a kill.

    With --choose gentlest small differences do not count: of the trials whose paired difference from the lowest, batch
    by batch, has zero in its 95 % interval, the one with the smallest learning rate is chosen. What learns faster is
    ahead early on, and further away when the stream is long.

    Such as

    driftlaw tune embedded

    driftlaw tune cifar10-c --seeds 1-3 --device cuda --grid learning_rate=2e-4,5e-4,1e-3 --grid tau=0.8,1.0
    """
    from driftlaw.cli.console import command_line, progress_bar
    from driftlaw.experiments import tuning as room
    from driftlaw.experiments.context import Workbench
    from driftlaw.hardware import pick_device
    from driftlaw.models import weights_sha256
    from driftlaw.records.tuning_file import check_same_weights, write_tuning

    plan = room.plan_tuning(
        preset,
        method=method,
        grid=grid or (),
        search=search,
        choose=choose,
        seeds=seeds,
        limit=limit,
        rounds=rounds,
        network=network,
        assignments=set_ or (),
    )
    bench = Workbench(pick_device(device), data_dir)
    for cell in plan.cells:
        room.refuse_benchmark(bench.stream(cell))
    bench.check(plan.cells)
    if told := room.warn_of_haste(len(bench.stream(plan.cells[0])), len(bench.stream(plan.benchmark))):
        print(f"note: {told}", file=sys.stderr)
    target, folder = out / plan.file_name, out / plan.cells[0].preset
    sha256 = weights_sha256(bench.network(plan.cells[0].model["weights"]))
    check_same_weights(target, sha256)

    def run_cells(cells: Sequence[Cell]) -> list[RunRecord]:
        found = [cell.finished_record(folder) for cell in cells]
        room.check_networks(found, sha256)
        return [
            record or _run(bench, cell, folder, bar, checkpoint_seconds)
            for cell, record in zip(cells, found, strict=True)
        ]

    with progress_bar() as bar:
        trials = bar.add_task("trials", total=plan.most_trials)
        outcome = room.tune(plan, run_cells, told=lambda so_far: bar.update(trials, completed=len(so_far.trials)))
    # Only now: who finds the file may take it for a choice.
    document = room.tuning_document(plan, outcome, command=command_line(), folder=folder.name, sha256=sha256)
    write_tuning(document, target)
    if as_json:
        print(target.read_text(encoding="utf-8"), end="")
    else:
        _print(plan, outcome, target, preset, network)


def _run(bench: Workbench, cell: Cell, folder: Path, bar: Progress, checkpoint_seconds: float) -> RunRecord:
    from driftlaw.cli.console import command_line

    task = bar.add_task(f"{cell.label} seed {cell.seed}", total=None)
    record = bench.run(
        cell,
        folder,
        command=command_line(),
        checkpoint_seconds=checkpoint_seconds,
        started=lambda steps: bar.update(task, total=steps),
        progress=lambda line: bar.update(task, completed=line["batch"] + 1),
    )
    bar.remove_task(task)
    return record


def _print(plan: Tuning, outcome: Outcome, target: Path, preset: str, network: str | None) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from driftlaw.experiments.paper import DATASETS, LAW
    from driftlaw.experiments.tuning import at_the_edge
    from driftlaw.reports.format import short_name

    table = Table(box=box.SIMPLE_HEAD, title="Error on held-out corruptions, %", title_style="bold")
    for name in [*plan.grid, *outcome.choice.error_by_domain, "mean"]:
        heading = short_name(name).replace(" ", "\n")
        table.add_column(heading, justify="right", no_wrap=True, vertical="bottom")
    for trial in outcome.trials:
        figures: list[Any] = [*trial.error_by_domain.values(), trial.mean_error]
        told = [*map(str, trial.values.values()), *[f"{figure:.1f}" for figure in figures]]
        table.add_row(*told, style="bold green" if trial is outcome.choice else "")
    Console().print(table)
    chosen = " ".join(f"--set {plan.cells[0].method}.{name}={value}" for name, value in outcome.choice.values.items())
    print(f"chosen of {len(outcome.trials)} trials: {chosen}")
    tied = len(outcome.tied) - 1
    if tied and plan.choose == "lowest":
        print(f"not to be told from it: {tied} more; --choose gentlest takes the smallest learning rate of them all")
    if edges := at_the_edge(plan, outcome.choice.values):
        print(f"at the edge of what was tried: {', '.join(edges)}; a wider --grid may find better values")
    print(f"{target} tells what was tried")
    if preset in DATASETS and plan.cells[0].method == LAW and target.parent.name == "tuning":
        words = ["driftlaw", "reproduce", "table1", "--datasets", preset, *(["--network", network] if network else [])]
        print(f"`{shlex.join([*words, '--out', str(target.parent.parent)])}` shows it as a row of its own")
