"""Progress on stderr: bars on a terminal; elsewhere one line per start and end of a run, and one per minute."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import typer

from driftlaw.errors import printable

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from driftlaw.experiments import RunSpec
    from driftlaw.experiments.context import RunResult

LINE_SECONDS = 60.0
"""Seconds between progress lines of a run without a terminal, such as in the log of a Slurm job."""


def progress_bar() -> Progress:
    """Return a progress bar with count, elapsed and remaining time. It is hidden without a terminal and with -q."""
    from rich import progress
    from rich.console import Console

    return progress.Progress(
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=is_quiet() or not sys.stderr.isatty(),
    )


class RunProgress:
    """Progress of several runs; implements ``driftlaw.experiments.runners.ProgressListener``.

    Args:
        bar: progress bar, which is hidden without a terminal.
        specs: all runs, in order to number them.
        cost: estimates the cost of a run, for the remaining time; equal for all runs if None.
    """

    def __init__(self, bar: Progress, specs: Sequence[RunSpec], cost: Callable[[RunSpec], float] | None = None) -> None:
        self._bar, self._started_at, self._ended, self._executed = bar, time.monotonic(), 0, 0
        self._cost = {spec.file_name: cost(spec) if cost else 1.0 for spec in specs}
        self._done = dict.fromkeys(self._cost, 0.0)
        self._tasks: dict[str, tuple[TaskID, int]] = {}  # with the number of steps
        self._printed_at: dict[str, float] = {}  # time of the last progress line, for runs that made a step
        self._not_run = 0.0  # cost of what was read from records instead of being run
        self._total = bar.add_task("all runs", total=sum(self._cost.values())) if len(specs) > 1 else None

    def started(self, spec: RunSpec, steps: int, node: str = "") -> None:
        """Show the bar of a run, or print that it has started."""
        where = f" on {node}" if node else ""
        if spec.file_name not in self._tasks:
            self._tasks[spec.file_name] = self._bar.add_task(printable(spec.title + where), total=steps), steps
            if self._bar.disable:
                self._print(f"{spec.title}: started{where}, {steps} steps")
        elif node:  # it was retried
            self._bar.update(self._tasks[spec.file_name][0], description=printable(spec.title + where))

    def stepped(self, spec: RunSpec, done: int) -> None:
        """Advance the bars, or print a line if the last one is a minute old."""
        (task, steps), now = self._tasks[spec.file_name], time.monotonic()
        self._bar.update(task, completed=done)
        self._advance(spec, done / steps)
        if spec.file_name not in self._printed_at:
            self._printed_at[spec.file_name] = now
            if done > 1:
                self._not_run += self._cost[spec.file_name] * (done - 1) / steps
                self._print(f"{spec.title}: resumed after {done - 1} of {steps} steps")
        elif self._bar.disable and now - self._printed_at[spec.file_name] >= LINE_SECONDS:
            self._printed_at[spec.file_name] = now
            self._print(f"{spec.title}: {done} of {steps} steps{self._time_left()}")

    def ended(self, result: RunResult) -> None:
        """Remove the bar of a run and print its error and time, or why it failed."""
        from driftlaw.records import read_record

        self._advance(result.spec, 1.0)
        if result.spec.file_name in self._tasks:
            self._bar.remove_task(self._tasks.pop(result.spec.file_name)[0])
        self._ended += 1
        outcome = f"failed: {result.problem}"
        if result.record is not None:
            record = read_record(result.record)
            error = record.error_text
            outcome = f"{error}, {format_duration(record.timing.get('seconds', 0.0))}"
            if result.spec.file_name not in self._printed_at:
                self._not_run += self._cost[result.spec.file_name]
                outcome = f"{error}, from its finished record (--overwrite runs it again)"
            else:
                self._executed += 1
        outcome += self._time_left()
        self._print(f"[{self._ended}/{len(self._cost)}] {result.spec.title}: {outcome}", always=bool(result.problem))

    def note(self, text: str) -> None:
        """Print a line."""
        self._print(text)

    def _time_left(self) -> str:
        done, total = sum(self._done.values()), sum(self._cost.values())
        if not self._not_run < done < total:
            return ""
        elapsed = time.monotonic() - self._started_at
        rate = f", {60 * self._executed / elapsed:.1f} runs per minute" if self._executed else ""
        return f"; about {format_duration(elapsed * (total - done) / (done - self._not_run))} left{rate}"

    def _advance(self, spec: RunSpec, fraction: float) -> None:
        self._done[spec.file_name] = fraction * self._cost[spec.file_name]
        if self._total is not None:
            self._bar.update(self._total, completed=sum(self._done.values()))

    def _print(self, line: str, *, always: bool = False) -> None:
        if always or not is_quiet():
            self._bar.console.print(printable(line), markup=False, highlight=False, soft_wrap=True)


def echo(text: str, *, err: bool = False) -> None:
    """Print text on stdout or stderr, with control characters as escape sequences."""
    typer.echo(printable(text), err=err)


def format_duration(seconds: float) -> str:
    """Return a duration with one suitable unit.

    >>> format_duration(3.21), format_duration(200), format_duration(8000)
    ('3.2 s', '3 min', '2.2 h')
    """
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def is_quiet() -> bool:
    """Return True if -q was given."""
    return bool(os.environ.get("DRIFTLAW_QUIET"))


def command_line() -> str:
    """Return the running command, as a user would type it."""
    return shlex.join(["driftlaw", *sys.argv[1:]])
