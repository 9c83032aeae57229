"""The command line, one small file a command; torch is imported inside a command, so ``--help`` answers at once."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from driftlaw import __version__
from driftlaw.cli.check import check
from driftlaw.cli.corrupt import corrupt
from driftlaw.cli.data import app as data_app
from driftlaw.cli.doctor import doctor
from driftlaw.cli.export import export
from driftlaw.cli.list import list_command
from driftlaw.cli.report import report
from driftlaw.cli.reproduce import reproduce
from driftlaw.cli.run import run
from driftlaw.cli.train import train
from driftlaw.cli.tune import tune
from driftlaw.errors import DriftlawError, DriftlawWarning

INTERRUPTED = 130


class _Commands(TyperGroup):
    """Says its own last word when a person or a pipe ends a command early, before typer says another."""

    def invoke(self, ctx: typer.Context) -> Any:
        try:
            answer = super().invoke(ctx)
            sys.stdout.flush()
        except KeyboardInterrupt:
            typer.echo("driftlaw: interrupted; the same command goes on from here", err=True)
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:  # the reader went away, as `driftlaw list | head` does
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        return answer


app = typer.Typer(
    name="driftlaw",
    cls=_Commands,
    help="Adapt a trained network to a drifting stream while it answers.",
    epilog="A first look, no download: driftlaw run embedded --methods source,norm,law --limit 400",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (run, reproduce, tune, report, corrupt, train, export, check, doctor):
    app.command()(command)
app.command("list")(list_command)
app.add_typer(data_app, name="data")


@app.callback(invoke_without_command=True)
def _options(
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Say more, and show where an error came from.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only results and errors.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit
    logging.basicConfig(level=logging.DEBUG if verbose else logging.WARNING, format="%(message)s", stream=sys.stderr)
    if quiet:
        os.environ["DRIFTLAW_QUIET"] = "1"


def main() -> None:
    """Run the command line; errors become one message on stderr and an exit code, our warnings a line each."""
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning(warnings.showwarning)
        try:
            app()
        except DriftlawError as error:
            logging.debug("", exc_info=error)
            typer.echo(f"driftlaw: {error}", err=True)
            sys.exit(error.exit_code)
        except OSError as error:
            logging.debug("", exc_info=error)
            typer.echo(f"driftlaw: {error}", err=True)
            sys.exit(1)


def _show_warning(as_before: Callable[..., None]) -> Callable[..., None]:
    """Return what tells our own warnings as the other remarks of a command: nobody here typed the line they name."""

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, DriftlawWarning):
            typer.echo(f"driftlaw: ! {message}", err=True)
        else:
            as_before(message, category, *where, **more)

    return show
