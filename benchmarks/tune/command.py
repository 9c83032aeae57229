"""``tune``: choose settings on the four held-out corruptions, never on the benchmark's fifteen."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from driftlaw.cli import options as opt

if TYPE_CHECKING:
    from benchmarks.tune.search import Tuning
    from driftlaw.experiments.run_spec import RunSpec
    from driftlaw.records import RunRecord


def tune(
    preset: opt.Preset,
    method: Annotated[str, typer.Option(help="Method whose settings are tuned.")] = "law",
    grid: Annotated[
        list[str] | None,
        typer.Option(help="A setting and its values: tau=0.6,0.8,1.0. LAW has a default grid. Repeatable."),
    ] = None,
    search: Annotated[
        str, typer.Option(help="'coordinate': one setting at a time, two sweeps; 'grid': all combinations.")
    ] = "coordinate",
    choose: Annotated[
        str,
        typer.Option(
            help="How to choose: 'lowest' takes the setting with the lowest mean error; 'gentlest' takes the smallest "
            "learning rate whose error is not significantly higher (95 % paired bootstrap)."
        ),
    ] = "lowest",
    seeds: opt.Seeds = "1",
    set_: opt.Set = None,
    limit: opt.Limit = None,
    rounds: Annotated[
        int, typer.Option(min=1, help="Repetitions of a continual stream; 4 is about as long as the benchmark.")
    ] = 4,
    model: opt.Network = None,
    out: Annotated[Path, typer.Option(help="Folder for PRESET.json and the records.")] = Path("results/tuning"),
    device: opt.Device = "auto",
    data_dir: opt.DataDir = None,
    on: opt.On = None,
    checkpoint_seconds: opt.CheckpointSeconds = 30.0,
    as_json: opt.AsJson = False,
) -> None:
    """Choose a method's settings on the held-out corruptions and write all trials to OUT/PRESET.json.

    With --model the file is OUT/PRESET-MODEL.json, which `driftlaw reproduce --model` reads.

    Trials run on a continual stream of speckle noise, Gaussian blur, spatter and saturate. A stream with any of the
    fifteen corruptions of the benchmark is an error, because results are reported on them.

    Running the same command again resumes an interrupted search. Finished trials are reused.

    Settings that adapt fast are ahead early in a stream and may fall behind later; --choose gentlest prefers the
    smallest learning rate among equally good trials.

    For example:

    python -m benchmarks tune embedded

    python -m benchmarks tune cifar10-c --seeds 1-3 --device cuda --grid learning_rate=2e-4,5e-4,1e-3 --grid tau=0.8,1.0
    """
    from benchmarks.tune.files import check_same_weights, write_tuning
    from benchmarks.tune.search import check_held_out, plan_tuning, run_search, tuning_document, warn_short_stream
    from driftlaw.cli.console import RunProgress, command_line, progress_bar
    from driftlaw.errors import DataError, UsageError
    from driftlaw.experiments import RunContext, RunOptions
    from driftlaw.experiments.context import RunResult
    from driftlaw.experiments.ray_runner import RayRunner
    from driftlaw.hardware import pick_device
    from driftlaw.models import weights_sha256

    tuning = plan_tuning(
        preset,
        method=method,
        grid=grid or (),
        search=search,
        choose=choose,
        seeds=seeds,
        limit=limit,
        rounds=rounds,
        model=model,
        assignments=set_ or (),
    )
    context, first = RunContext(pick_device("cpu" if on else device), data_dir), tuning.specs[0]
    for spec in tuning.specs:
        check_held_out(context.stream(spec).recipe())
    context.check(tuning.specs)
    if warning := warn_short_stream(len(context.stream(first)), len(context.stream(tuning.benchmark))):
        typer.echo(f"driftlaw: ! {warning}", err=True)
    target, folder = out / tuning.file_name, out / first.preset
    sha256 = weights_sha256(context.model(first.model))
    check_same_weights(target, sha256)
    options = RunOptions(folder, device, data_dir, command=command_line(), checkpoint_seconds=checkpoint_seconds)

    def run_missing(specs: Sequence[RunSpec]) -> None:
        if runner is None:
            for spec in specs:
                progress = RunProgress(bar, [spec])
                progress.ended(RunResult(spec, context.run(spec, options, progress).path))
        else:
            runner.listener = RunProgress(bar, specs)
            results = [future.result() for future in [runner.submit(spec, options) for spec in specs]]
            for problem in [result.problem for result in results if result.problem]:
                raise DataError(problem)

    def run_trials(specs: Sequence[RunSpec]) -> list[RunRecord]:
        if missing := [spec for spec in specs if spec.finished_record(folder) is None]:
            run_missing(missing)
        records = [record for spec in specs if (record := spec.finished_record(folder))]
        for record in records:
            if record.header["model"].get("sha256") != sha256:
                raise UsageError(f"{record.path} was made with other weights of the same name. Choose another --out.")
        return records

    with progress_bar() as bar, RayRunner(on, RunProgress(bar, [])) if on else nullcontext() as runner:
        task = bar.add_task("trials", total=tuning.max_trials)
        for _ in run_search(tuning, run_trials):
            bar.update(task, advance=1)
    # Written at the end only: whoever finds the file may use its settings.
    document = tuning_document(tuning, command=command_line(), folder=folder.name, sha256=sha256)
    write_tuning(document, target)
    if as_json:
        print(target.read_text(encoding="utf-8"), end="")
    else:
        _print(tuning, target, preset, model)


def _print(tuning: Tuning, target: Path, preset: str, model: str | None) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from driftlaw.experiments.paper import DATASETS, LAW
    from driftlaw.reports.format import short_name

    choice, method = tuning.choice, tuning.specs[0].method
    table = Table(box=box.SIMPLE_HEAD, title="Error on held-out corruptions, %", title_style="bold")
    for name in [*tuning.grid, *choice.error_by_domain, "mean"]:
        table.add_column(short_name(name).replace(" ", "\n"), justify="right", no_wrap=True, vertical="bottom")
    for trial in tuning.trials:
        errors = [f"{error:.1f}" for error in [*trial.error_by_domain.values(), trial.mean_error]]
        table.add_row(*map(str, trial.values.values()), *errors, style="bold green" if trial is choice else "")
    Console().print(table)
    settings = " ".join(f"--set {method}.{name}={value}" for name, value in choice.values.items())
    print(f"Chosen from {len(tuning.trials)} trials: {settings}")
    tied = len(tuning.tied) - 1
    if tied and tuning.choose == "lowest":
        print(f"{tied} other trials are not significantly worse. --choose gentlest takes the smallest learning rate.")
    if names := tuning.at_boundary(choice.values):
        print(f"At the boundary of the grid: {', '.join(names)}. A wider --grid may find better values.")
    print(f"All trials are in {target}.")
    if preset in DATASETS and method == LAW and target.parent.name == "tuning":
        words = ["driftlaw", "reproduce", "table1", "--datasets", preset, *(["--model", model] if model else [])]
        print(f"`{shlex.join([*words, '--out', str(target.parent.parent)])}` shows these settings as another row.")
