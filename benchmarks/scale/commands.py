"""Sub-application ``scale``: its commands."""

import typer

from benchmarks.scale.pool import pool

app = typer.Typer(
    help="Measure many streams in one process.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def scale() -> None:
    """Measure many streams in one process."""


app.command()(pool)
