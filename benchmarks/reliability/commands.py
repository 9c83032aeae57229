"""Sub-application ``reliability``: its commands."""

import typer

from benchmarks.reliability.attack import attack
from benchmarks.reliability.bad_images import bad_images
from benchmarks.reliability.cost import cost
from benchmarks.reliability.fuzz import fuzz
from benchmarks.reliability.kill import kill
from benchmarks.reliability.serve_hostile import serve_hostile
from benchmarks.reliability.serve_kill import serve_kill
from benchmarks.reliability.serve_overload import serve_overload
from benchmarks.reliability.serve_schema import serve_schema
from benchmarks.reliability.serve_speed import serve_speed
from benchmarks.reliability.streams import streams
from benchmarks.reliability.watch import watch

app = typer.Typer(
    help="Measure what bad images, collapsing streams, attacks, kills and damaged files do to driftlaw.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    attack,
    bad_images,
    cost,
    fuzz,
    kill,
    serve_hostile,
    serve_kill,
    serve_overload,
    serve_schema,
    serve_speed,
    streams,
    watch,
):
    app.command()(command)
