"""Sub-application ``scale``: its commands."""

import typer

from benchmarks.scale.pool import pool
from benchmarks.scale.ray import ray, ray_overhead
from benchmarks.scale.shards import shards

app = typer.Typer(
    help="Measure many streams in one process, streams that are larger than memory, and experiments on a cluster.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def scale() -> None:
    """Measure many streams in one process, streams that are larger than memory, and experiments on a cluster."""


app.command()(pool)
app.command()(ray)
app.command()(ray_overhead)
app.command()(shards)
