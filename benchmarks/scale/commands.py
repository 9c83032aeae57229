"""Sub-application ``scale``: its commands."""

import typer

from benchmarks.scale.pool import pool
from benchmarks.scale.ranks import ranks
from benchmarks.scale.ranks_kill import ranks_kill
from benchmarks.scale.shards import shards

app = typer.Typer(
    help="Measure many streams in one process, streams larger than memory, and one stream on several ranks.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def scale() -> None:
    """Measure many streams in one process, streams larger than memory, and one stream on several ranks."""


for command in (pool, ranks, ranks_kill, shards):
    app.command()(command)
