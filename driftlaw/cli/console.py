"""What every command shows of itself: a progress bar where a person looks on, its own command line for a record."""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress


def progress_bar() -> Progress:
    """Return a bar with count, time taken and time left; silent where stderr is no terminal or -q was given."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    silent = is_quiet() or not sys.stderr.isatty()
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=silent,
    )


def is_quiet() -> bool:
    """Tell whether -q was given."""
    return bool(os.environ.get("DRIFTLAW_QUIET"))


def command_line() -> str:
    """Return the command that is running, as a user would type it again."""
    return shlex.join(["driftlaw", *sys.argv[1:]])
