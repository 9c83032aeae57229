"""``driftlaw list``: names of methods, models, weights, datasets, corruptions and presets."""

import json
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from driftlaw.cli.options import AsJson

KINDS = ("methods", "models", "weights", "datasets", "corruptions", "presets")


def _entries(kind: str) -> list[dict[str, Any]]:
    """Return what is known about everything of a kind; each entry has at least a name and a title."""
    from dataclasses import asdict

    from driftlaw import corruptions, datasets, methods, models, settings

    if kind == "methods":
        return [methods.method_info(method) for _, method in sorted(methods.registered_methods().items())]
    if kind == "weights":
        return [{"name": name, "title": str(path)} for name, path in models.list_weights().items()]
    if kind == "presets":
        return [{"name": name, "title": settings.read_preset(name)["title"]} for name in settings.list_presets()]
    infos: dict[str, Iterable[Any]] = {
        "models": models.list_models(),
        "datasets": datasets.list_datasets(),
        "corruptions": corruptions.CORRUPTIONS,
    }
    return [asdict(info) for info in infos[kind]]


def list_command(
    kind: Annotated[str | None, typer.Argument(help=f"One of {', '.join(KINDS)} (default: all).")] = None,
    as_json: AsJson = False,
) -> None:
    """List the available methods, models, weights, datasets, corruptions and presets.

    For example: driftlaw list methods --json
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from driftlaw.errors import printable, unknown_name

    if kind is not None and kind not in KINDS:
        raise unknown_name("kind", kind, KINDS)
    entries = {name: _entries(name) for name in ([kind] if kind else KINDS)}
    if as_json:
        print(json.dumps(entries[kind] if kind else entries, indent=1))
        return
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, group in entries.items():
        table.add_row(Text(name, style="bold"), "")
        for entry in group:
            table.add_row(f"  {printable(entry['name'])}", printable(entry["title"]))
    Console(markup=False, emoji=False).print(table)
