"""``driftlaw train``: run ``python -m benchmarks train``, which is part of the repository and not of the wheel."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Annotated

import typer


def train(arguments: Annotated[list[str] | None, typer.Argument()] = None) -> None:
    """Train a source model, in a clone of the repository."""
    from driftlaw.errors import UsageError

    sys.path.append(os.getcwd())
    try:
        module = import_module("benchmarks.train.command")
    except ModuleNotFoundError:
        raise UsageError(
            "The training of source models is part of the repository, not of the installed package. "
            "Run `python -m benchmarks train` in a clone."
        ) from None
    finally:
        sys.path.pop()
    app = typer.Typer(add_completion=False)
    app.command()(module.train)
    command = typer.main.get_command(app)
    with command.make_context("driftlaw train", arguments or []) as context:
        command.invoke(context)
