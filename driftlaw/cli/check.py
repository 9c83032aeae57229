"""``driftlaw check``: does a method keep its promises?"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from driftlaw.base import Adapter
    from driftlaw.testing import CheckResult


def check(
    method: Annotated[
        str, typer.Argument(metavar="FILE_OR_NAME", help="A .py file that defines one method, or a method's name.")
    ],
    set_: Annotated[list[str] | None, typer.Option("--set", help="A setting of the method: tau=0.6.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
) -> None:
    """Hold a method against every promise of the contract, on a tiny network; exit code 1 where one is broken.

    Such as

    driftlaw check my_method.py

    driftlaw check law --set fisher=per_sample --json
    """
    import contextlib
    import sys

    from driftlaw.testing import check_method, find_method

    with contextlib.redirect_stdout(sys.stderr):  # what a user's file prints must not end up inside the document
        kind = find_method(method)
        settings = _settings(set_ or [], kind.name)
        results = check_method(kind, settings)
    if as_json:
        print(json.dumps(_document(kind, settings, results), indent=1))
    else:
        _print_table(kind, results)
    if not all(result.passed for result in results):
        raise typer.Exit(1)


def _settings(assignments: list[str], name: str) -> dict[str, Any]:
    """Return the method's settings; ``tau=0.6`` and ``law.tau=0.6`` mean the same."""
    from driftlaw.settings import merge, parse_assignments

    tables = parse_assignments(assignments)
    own = tables.pop(name, {})
    return merge(tables, own) if isinstance(own, dict) else {**tables, name: own}


def _document(kind: type[Adapter], settings: dict[str, Any], results: list[CheckResult]) -> dict[str, Any]:
    from dataclasses import asdict

    descriptions = _descriptions()
    return {
        "method": kind.name,
        "settings": settings,
        "passed": all(result.passed for result in results),
        "checks": [asdict(result) | {"description": descriptions[result.name]} for result in results],
    }


def _print_table(kind: type[Adapter], results: list[CheckResult]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    descriptions = _descriptions()
    table = Table(box=None, pad_edge=False, show_header=False)
    for result in results:
        mark = "[green]✓[/green]" if result.passed else "[red]✗[/red]"
        words = descriptions[result.name] if result.passed else f"[red]{escape(result.reason)}[/red]"
        table.add_row(mark, result.name.replace("_", " "), f"[dim]{words}[/dim]" if result.passed else words)
    kept = sum(result.passed for result in results)
    console = Console()
    console.print(table)
    console.print(f"{kind.name}: {kept} of {len(results)} checks passed", highlight=False)


def _descriptions() -> dict[str, str]:
    from driftlaw.testing import CHECKS

    return {check.__name__: (check.__doc__ or "").splitlines()[0] for check in CHECKS}
