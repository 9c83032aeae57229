"""``driftlaw check``: run the conformance tests on a method."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from driftlaw.cli.console import echo
from driftlaw.cli.options import AsJson, split_names
from driftlaw.errors import printable

if TYPE_CHECKING:
    from driftlaw.testing import CheckResult


def check(
    method: Annotated[
        str,
        typer.Argument(
            metavar="FILE_OR_NAME", help="A .py file that defines one method, which is executed, or a method's name."
        ),
    ],
    set_: Annotated[list[str] | None, typer.Option("--set", help="Setting of the method, such as tau=0.6.")] = None,
    only: Annotated[
        str, typer.Option(help="Comma-separated names of the checks to run, as printed by --json (default: all).")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Run the conformance tests on a method, with a tiny model on the CPU. The exit code is 1 if a test fails.

    The code in FILE is executed with your permissions. Check only files that you trust.

    For example:

    driftlaw check my_method.py

    driftlaw check law --set fisher=per_sample --only seed_determines_result --json
    """
    import contextlib
    import sys
    from dataclasses import asdict

    from driftlaw.base.find_method import is_method_file
    from driftlaw.settings import merge, parse_assignments
    from driftlaw.testing import CHECKS, check_method, find_method

    if is_method_file(method):
        echo(f"driftlaw: The code in {method} is executed. Check only files that you trust.", err=True)
    with contextlib.redirect_stdout(sys.stderr):  # what a user's file prints must not end up in the JSON document
        kind = find_method(method)
        settings = parse_assignments(set_ or [])
        own = settings.get(kind.name)
        if isinstance(own, dict):  # law.tau=0.6 means the same as tau=0.6
            settings = merge({key: value for key, value in settings.items() if key != kind.name}, own)
        results = check_method(kind, settings, only=split_names(only))
    passed = all(result.passed for result in results)
    descriptions = {check.__name__: (check.__doc__ or "").splitlines()[0] for check in CHECKS}
    if as_json:
        checks = [asdict(result) | {"description": descriptions[result.name]} for result in results]
        document: dict[str, Any] = {"method": kind.name, "settings": settings, "passed": passed, "checks": checks}
        print(json.dumps(document, indent=1))
    else:
        _print_table(kind.name, results, descriptions)
    if not passed:
        raise typer.Exit(1)


def _print_table(method: str, results: list[CheckResult], descriptions: dict[str, str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    for result in results:
        mark = Text("✓", style="green") if result.passed else Text("✗", style="red")
        text = printable(descriptions[result.name] if result.passed else result.reason)
        table.add_row(mark, result.name.replace("_", " "), Text(text, style="dim" if result.passed else "red"))
    Console(markup=False, emoji=False).print(table)
    echo(f"{method}: {sum(result.passed for result in results)} of {len(results)} checks passed")
