"""Sub-application ``reliability``: its commands."""

import typer

from benchmarks.reliability.fuzz import fuzz
from benchmarks.reliability.kill import kill

app = typer.Typer(
    help="Measure what kills, damaged files and unusual arguments do to driftlaw.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (fuzz, kill):
    app.command()(command)
