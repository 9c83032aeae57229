"""Command line, one file per command. Commands import torch themselves, so that ``--help`` is fast."""

import logging
import os
import signal
import sys
import warnings
from typing import Annotated, Any

import typer

from driftlaw import __version__
from driftlaw.cli import torchrun
from driftlaw.cli.check import check
from driftlaw.cli.console import echo
from driftlaw.cli.corrupt import corrupt
from driftlaw.cli.data import app as data_app
from driftlaw.cli.doctor import doctor
from driftlaw.cli.export import export
from driftlaw.cli.list import list_command
from driftlaw.cli.options import Command, Group
from driftlaw.cli.report import report
from driftlaw.cli.repository import repository_command
from driftlaw.cli.reproduce import reproduce
from driftlaw.cli.run import run
from driftlaw.cli.serve import serve
from driftlaw.cli.watch import watch
from driftlaw.errors import DriftlawError, DriftlawWarning

INTERRUPTED, TERMINATED = 130, 143  # exit codes after Ctrl-C and SIGTERM, as shells report them

_RESUMABLE = {"run", "reproduce", "train", "tune", "get", "watch"}  # commands that continue what was interrupted


class _Commands(Group):
    """Ends commands that were interrupted, or whose reader went away, with one message and an exit code."""

    def parse_args(self, ctx: Any, args: Any) -> Any:  # here list is the module of that command
        """Accept ``-q`` and ``-v`` after the name of the command, too."""
        flags = [word for word in args if word in ("-q", "--quiet", "-v", "--verbose")]
        return super().parse_args(ctx, flags + [word for word in args if word not in flags])

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except (KeyboardInterrupt, SystemExit) as stop:
            if isinstance(stop, SystemExit) and stop.code != TERMINATED:
                raise
            again = "without --overwrite" if {"--overwrite", "--again"} & set(sys.argv) else "again"
            resume = f" Run the same command {again} to resume." if _RESUMABLE & set(sys.argv) else ""
            echo(f"driftlaw: Interrupted.{resume}", err=True)
            raise typer.Exit(TERMINATED if isinstance(stop, SystemExit) else INTERRUPTED) from None
        except BrokenPipeError:  # such as `driftlaw list | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None


app = typer.Typer(
    name="driftlaw",
    cls=_Commands,
    help="Test-time adaptation: update a trained image classifier during inference, without labels.",
    epilog="To try it without a download: driftlaw run embedded --methods source,norm,law --limit 400",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (run, serve, watch, reproduce, report, corrupt, export, check, doctor):
    app.command(cls=Command)(command)
app.command("list", cls=Command)(list_command)
for name in ("train", "tune"):
    settings = {"ignore_unknown_options": True}
    app.command(name, hidden=True, add_help_option=False, context_settings=settings)(repository_command(name))
app.add_typer(data_app, name="data")


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print debug messages and tracebacks.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print results and errors only, no progress.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit
    torchrun.check_command(context.invoked_subcommand)
    logging.basicConfig(level=logging.DEBUG if verbose else logging.WARNING, format="%(message)s", stream=sys.stderr)
    if quiet:
        os.environ["DRIFTLAW_QUIET"] = "1"


def main() -> None:
    """Run the command line. An error becomes one message on stderr and an exit code, a warning of ours one line."""
    # During a run, the evaluator has its own handler, which saves the state first.
    before, show_other = signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED)), warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *location: Any, **more: Any) -> None:
        if issubclass(category, DriftlawWarning):
            echo(f"driftlaw: ! {message}", err=True)  # without file and line
        else:
            show_other(message, category, *location, **more)

    with warnings.catch_warnings():
        warnings.showwarning = show
        try:
            with torchrun.hidden_output():
                app(prog_name="driftlaw")
        except (DriftlawError, OSError) as error:
            logging.debug("", exc_info=error)
            if torchrun.is_first_report(error):
                echo(f"driftlaw: {torchrun.describe(error)}", err=True)
            sys.exit(error.exit_code if isinstance(error, DriftlawError) else 1)
        finally:
            signal.signal(signal.SIGTERM, before)
