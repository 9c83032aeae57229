"""Sub-application ``scale``: its commands."""

import typer

from benchmarks.scale.pool import pool
from benchmarks.scale.ranks import ranks
from benchmarks.scale.ranks_kill import ranks_kill
from benchmarks.scale.ray import ray, ray_overhead
from benchmarks.scale.shards import shards

app = typer.Typer(
    help="Measure many streams in one process, streams larger than memory, several ranks, and runs on a cluster.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def scale() -> None:
    """Measure many streams in one process, streams larger than memory, several ranks, and runs on a cluster."""


for command in (pool, ranks, ranks_kill, ray, ray_overhead, shards):
    app.command()(command)
