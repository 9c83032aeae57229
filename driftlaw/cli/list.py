"""``driftlaw list``: what there is."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any

import typer


def _methods() -> list[dict[str, Any]]:
    from driftlaw.methods import method_info, registered_methods

    return [method_info(kind) for _, kind in sorted(registered_methods().items())]


def _models() -> list[dict[str, Any]]:
    from dataclasses import asdict

    from driftlaw.models import list_models

    return [asdict(info) for info in list_models()]


def _weights() -> list[dict[str, Any]]:
    from driftlaw.models import list_weights

    return [{"name": name, "title": str(path)} for name, path in list_weights().items()]


def _datasets() -> list[dict[str, Any]]:
    from dataclasses import asdict

    from driftlaw.datasets import list_datasets

    return [asdict(info) for info in list_datasets()]


def _corruptions() -> list[dict[str, Any]]:
    from dataclasses import asdict

    from driftlaw.corruptions import CORRUPTIONS

    return [asdict(info) for info in CORRUPTIONS]


def _presets() -> list[dict[str, Any]]:
    from driftlaw.settings import list_presets, read_preset

    return [{"name": name, "title": read_preset(name)["title"]} for name in list_presets()]


KINDS: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "methods": _methods,
    "models": _models,
    "weights": _weights,
    "datasets": _datasets,
    "corruptions": _corruptions,
    "presets": _presets,
}


def list_command(
    kind: Annotated[str | None, typer.Argument(help=f"One of {', '.join(KINDS)}; all of them where left out.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
) -> None:
    """Name the methods, models, weights, datasets, corruptions and presets.

    Example: driftlaw list methods --json
    """
    from driftlaw.errors import unknown

    if kind is not None and kind not in KINDS:
        raise unknown("kind of thing to list", kind, list(KINDS))
    found = {name: KINDS[name]() for name in ([kind] if kind else KINDS)}
    if as_json:
        print(json.dumps(found[kind] if kind else found, indent=1))
    else:
        _print_table(found)


def _print_table(found: dict[str, list[dict[str, Any]]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    for kind, entries in found.items():
        table.add_row(f"[bold]{kind}[/bold]", "")
        for entry in entries:
            table.add_row(f"  {entry['name']}", entry["title"])
    Console().print(table)
