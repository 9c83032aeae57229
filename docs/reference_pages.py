"""Writes the reference pages from the code: a page a method, what a step costs, the corruptions, the commands."""

from __future__ import annotations

import inspect
from pathlib import Path

import typer
from cost_page import cost_page

from driftlaw.base import Adapter
from driftlaw.cli import app
from driftlaw.corruptions.registry import CORRUPTIONS
from driftlaw.methods import registered_methods


def write_pages(folder: Path) -> None:
    """Write every page anew; pages of things that are gone go too."""
    pages = {f"method-{name}.md": method_page(kind) for name, kind in sorted(registered_methods().items())}
    pages |= {"corruptions.md": corruptions_page(), "commands.md": commands_page(), "cost.md": cost_page()}
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.md"):
        if old.name not in pages:
            old.unlink()
    for name, text in pages.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def method_page(kind: type[Adapter]) -> str:
    """Return the page of a method: its docstring, what it needs and costs, its settings."""
    module = inspect.getdoc(inspect.getmodule(kind)) or ""
    parts = [
        f"# {kind.title} (`{kind.name}`)",
        module,
        inspect.getdoc(kind) or "",
        "## What it needs and costs",
        _facts(kind),
        "## Settings",
        _settings(kind),
        "## How to call it",
        f'```python\nadapter = driftlaw.adapt(model, "{kind.name}")\nlogits = adapter(images)\n```',
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _facts(kind: type[Adapter]) -> str:
    total = kind.forward_cost + kind.backward_cost
    rows = {
        "source-free": "no, it needs the training data" if kind.needs_train_data else "yes",
        "what learns": kind.adapts,
        "cost of a step": f"{total:g} forward passes' worth, {kind.backward_cost:g} of it backward",
    }
    if kind.paper:
        rows["paper"] = kind.paper
    return _table(("", ""), rows.items())


def _settings(kind: type[Adapter]) -> str:
    fields = kind.Config.model_fields
    if not fields:
        return "None."
    rows = [(f"`{name}`", f"`{field.default!r}`", field.description or "") for name, field in fields.items()]
    return _table(("setting", "default", "what it is"), rows)


def corruptions_page() -> str:
    """Return the table of all corruptions with their numbers."""
    rows = [
        (
            f"`{entry.name}`",
            entry.kind.replace("_", " "),
            ", ".join(entry.parameter_names),
            _severities(entry.small),
            _severities(entry.large),
        )
        for entry in CORRUPTIONS
    ]
    head = ("name", "kind", "numbers", "severities 1–5, small images", "severities 1–5, large images")
    intro = "Images with no side over 64 pixels take CIFAR-C's numbers, larger ones ImageNet-C's."
    return f"# Corruptions\n\n{intro}\n\n{_table(head, rows)}\n"


def _severities(rows: tuple[tuple[float, ...], ...]) -> str:
    return " · ".join(", ".join(f"{value:g}" for value in row) for row in rows)


def commands_page() -> str:
    """Return what every command says of itself when asked for help."""
    root = typer.main.get_command(app)
    parts = ["# Commands"]
    for name, command in sorted(root.commands.items()):
        for path, one in _leaves(name, command):
            parts += [f"## driftlaw {path}", inspect.cleandoc(one.help or ""), _options(one)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _leaves(path: str, command):
    children = getattr(command, "commands", None)
    if not children:
        return [(path, command)]
    return [leaf for name, child in sorted(children.items()) for leaf in _leaves(f"{path} {name}", child)]


def _options(command) -> str:
    rows = []
    for option in command.params:
        names = (
            ", ".join(f"`{name}`" for name in option.opts)
            if option.opts[0].startswith("-")
            else f"`{option.name.upper()}`"
        )
        rows.append((names, getattr(option, "help", "") or ""))
    return _table(("option", "what it is"), rows)


def _table(head, rows) -> str:
    escaped = [[str(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    lines = [head, ["---"] * len(head), *escaped]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
