"""Command-line options that several commands share, each with one help text."""

import inspect
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

Preset = Annotated[
    str, typer.Argument(help="Preset name (see `driftlaw list presets`), TOML file, or several combined: A+B.")
]
Methods = Annotated[
    str | None,
    typer.Option(
        help="Comma-separated method names or Python files, which are executed: source,law,mymethod.py (default: all "
        "in the preset)."
    ),
]
Method = Annotated[
    str | None,
    typer.Option(
        help="Name of a method, or a Python file with one, which is executed. Default: law, or norm for networks that "
        "predict a class per pixel."
    ),
]
Guard = Annotated[bool, typer.Option("--guard", help="Run under the guard, which undoes harmful updates.")]
Seeds = Annotated[str, typer.Option(help="Seeds: 1, 1,2,3 or 1-5.")]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Change a setting: law.tau=0.6, stream.severity=3, step.precision=float32 (all methods). Repeatable.",
    ),
]
Network = Annotated[
    str | None,
    typer.Option(
        "--network",
        "--model",
        help="Network instead of the preset's: weights by name or file, timm:NAME, torchvision:NAME, hf:NAME, "
        "smp:NAME, 'embedded', or mynet.py:make (a function or class in a Python file, which is executed).",
    ),
]
ServedNetwork = Annotated[
    str,
    typer.Option(
        "--network",
        "--model",
        help="Network, as for `driftlaw run`: weights by name or file, timm:NAME, mynet.py:make, …",
    ),
]


def _parse_image_size(text: str) -> tuple[int, int]:
    if not re.fullmatch(r"[1-9]\d{0,4}(x[1-9]\d{0,4})?", text):
        raise typer.BadParameter(f"'{text}' is not a size. Expected height and width, such as 360x480, or one number.")
    height, _, width = text.partition("x")
    return int(height), int(width or height)


ImageSize = Annotated[
    Any,
    typer.Option(
        parser=_parse_image_size,
        metavar="HEIGHTxWIDTH",
        help="Size of the network's images, if it does not state it: 360x480, or 224 for a square.",
    ),
]
Checkpoint = Annotated[
    Path | None,
    typer.Option(help="State dict to load into the network: .pth, .pt or .safetensors."),
]
Normalize = Annotated[
    str | None,
    typer.Option(
        "--normalize",
        "--normalise",
        help="Input normalisation of the network, such as imagenet, cifar10 or half, if its file does not store it.",
    ),
]
Limit = Annotated[int | None, typer.Option(help="Maximum number of images per domain (default: all).")]
Metrics = Annotated[
    str | None,
    typer.Option(
        "--metrics",
        "--measures",
        help="Extra metrics, comma-separated: calibration, forgetting, drift, agreement, frames.",
    ),
]
Device = Annotated[str, typer.Option(help="Device: auto, cpu, cuda, cuda:1, …")]
Data = Annotated[
    str | None,
    typer.Option(
        help="Folder of images, or WebDataset shards such as 'shards/{000..049}.tar', to use instead of the preset's "
        "stream, uncorrupted unless --set stream.corruptions is given. Class sub-folders give labels; without them "
        "there is no error."
    ),
]
Workers = Annotated[
    int, typer.Option(min=0, help="Processes that read images in advance. Records do not depend on their number.")
]
DataDir = Annotated[
    Path | None, typer.Option("--data-dir", help="Data directory (default: $DRIFTLAW_DATA, then the user cache).")
]
Jobs = Annotated[int, typer.Option(min=1, help="Number of runs in parallel, each in its own process.")]
On = Annotated[
    str | None,
    typer.Option(
        help="Execute the runs on Ray: 'ray' (the cluster of $RAY_ADDRESS, or a new Ray on this machine), "
        "ray://HOST:PORT or HOST:PORT (default: on this machine, without Ray)."
    ),
]
Overwrite = Annotated[
    bool,
    typer.Option(
        "--overwrite", "--again", help="Delete existing records of these runs and start again. Omit it to resume."
    ),
]
CheckpointSeconds = Annotated[float, typer.Option(help="Seconds between checkpoints.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the planned runs and exit.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]


class _ReadableHelp(TyperCommand if TYPE_CHECKING else object):  # type: ignore[misc]
    """Help without the type `<bool>` of flags, and with paragraphs that fill the terminal."""

    def __init__(self, *args: Any, help: str | None = None, **more: Any) -> None:
        paragraphs = inspect.cleandoc(help or "").split("\n\n")
        super().__init__(*args, help="\n\n".join(text.replace("\n", " ") for text in paragraphs), **more)

    def get_params(self, ctx: Any) -> Any:
        params = super().get_params(ctx)
        for param in params:
            if getattr(param, "is_flag", False):
                param.metavar = ""
        return params


class Command(_ReadableHelp, TyperCommand):
    """A command of the command line."""


class Group(_ReadableHelp, TyperGroup):
    """A group of commands, such as `driftlaw data`."""


def with_guard(assignments: Sequence[str] | None, guard: bool) -> list[str]:
    """Return the assignments of ``--set``, and one that switches the guard on if they do not set it.

    >>> with_guard(["law.tau=1"], True), with_guard(["step.guard.shrink=0.5"], True)
    (['law.tau=1', 'step.guard=true'], ['step.guard.shrink=0.5'])
    """
    given = list(assignments or [])
    return given if not guard or any(text.startswith("step.guard") for text in given) else [*given, "step.guard=true"]


def split_names(text: str | None) -> list[str]:
    """Return the names of a comma-separated list.

    >>> split_names("source, law")
    ['source', 'law']
    """
    return [name.strip() for name in (text or "").split(",") if name.strip()]
