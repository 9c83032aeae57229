"""Writes the generated part of the manual to docs/reference/: settings, costs, commands, corruptions, tables.

Pages (``settings.md``, ``corruptions.md``, ``commands.md``, ``cost.md``) are documents of their own. Fragments
(``method-*.md``, ``methods-table.md``, ``table-*.md``) are included by pages written by hand.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import typer
from cost_page import cost_page
from record_tables import TABLES, method_table

from driftlaw.base import Adapter, BatchStatsSettings, ExecutionSettings
from driftlaw.cli import app
from driftlaw.corruptions.registry import CORRUPTIONS
from driftlaw.methods import registered_methods

ORDER = (
    "law",
    "law_plus",
    "norm",
    "tent",
    "cotta",
    "adacontrast",
    "rmt",
    "gtta",
    "eta",
    "eata",
    "rdumb",
    "roid",
    "cmf",
    "autorgn",
    "surgical",
    "palm",
    "sar",
    "deyo",
    "rotta",
    "lame",
    "source",
)
COMMAND = "\0"  # marks a line of a help text that is a command
VENUE = re.compile(r", ((?:\w+ \d{4}|arXiv:).*)")  # titles may contain commas
DIFFERENCES = re.compile(
    r"\*{0,2}(?:Differences|Departs) from the paper:?\*{0,2}:?\s*(?P<text>.*?)(?=\n\n\w+:\n|\Z)", re.DOTALL
)


def write_pages(folder: Path) -> None:
    """Write all pages and fragments, and delete those of things that no longer exist."""
    methods = registered_methods()
    pages = {f"method-{name}.md": method_fragment(methods[name]) for name in methods}
    pages |= {f"table-{name}.md": method_table(name) + "\n" for name in methods}
    pages |= {f"table-{name}.md": table() + "\n" for name, table in TABLES.items()}
    pages |= {
        "methods-table.md": methods_table(),
        "settings.md": settings_page(),
        "corruptions.md": corruptions_page(),
        "commands.md": commands_page(),
        "cost.md": cost_page(),
    }
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.md"):
        if old.name not in pages:
            old.unlink()
    for name, text in pages.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


# --- methods ------------------------------------------------------------------------------------------------------


def method_fragment(kind: type[Adapter]) -> str:
    """Return what a method needs and costs, its settings, and its differences from the paper."""
    parts = ["## Requirements and cost", _requirements(kind), "## Settings"]
    if own := own_settings(kind):
        parts.append(_settings_table(kind.Config, own))
    shared = [base.__name__ for base in (BatchStatsSettings, ExecutionSettings) if issubclass(kind.Config, base)]
    links = {
        "BatchStatsSettings": "[small batches](../reference/settings.md#small-batches)",
        "ExecutionSettings": "[execution](../reference/settings.md#execution)",
    }
    if shared:
        parts.append("Settings shared by several methods: " + ", ".join(links[name] for name in shared) + ".")
    elif not own:
        parts.append("None.")
    parts += ["## Differences from the paper", differences(kind)]
    return "\n\n".join(parts) + "\n"


def differences(kind: type[Adapter]) -> str:
    """Return the part of a method's docstring that lists differences from its paper."""
    match = DIFFERENCES.search(inspect.getdoc(kind) or "")
    if match is None:
        raise ValueError(f"The docstring of {kind.__name__} has no 'Differences from the paper:' section.")
    text = inspect.cleandoc(match["text"])
    return text[0].upper() + text[1:]


def own_settings(kind: type[Adapter]) -> list[str]:
    """Return the names of a method's settings without the shared ones; those of its own file come first."""
    shared = {*BatchStatsSettings.model_fields, *ExecutionSettings.model_fields}
    declared = [name for base in kind.Config.__mro__ for name in vars(base).get("__annotations__", {})]
    own = set(kind.Config.__annotations__)
    names = [name for name in dict.fromkeys(declared) if name in kind.Config.model_fields]
    return [name for name in names if name in own or name not in shared]


def _requirements(kind: type[Adapter]) -> str:
    total = kind.forward_cost + kind.backward_cost
    rows = {
        "training data": "needed" if kind.needs_train_data else "not needed (source-free)",
        "adapts": kind.adapts,
        "logits per pixel": f"refused: {kind.classification_only}" if kind.classification_only else "accepted",
        "cost per step": f"{total:g} forward passes ({kind.forward_cost:g} forward, {kind.backward_cost:g} backward)",
        "paper": kind.paper or "none",
    }
    return _table(("", ""), rows.items())


def _settings_table(config: Any, names: Iterable[str]) -> str:
    rows = [
        (f"`{name}`", f"`{_default(config.model_fields[name])}`", config.model_fields[name].description or "")
        for name in names
    ]
    return _table(("setting", "default", "meaning"), rows)


def _default(field: Any) -> str:
    value = field.get_default(call_default_factory=True)
    return value if isinstance(value, str) else repr(value)


def methods_table() -> str:
    """Return the table of all methods with links to their pages."""
    methods = registered_methods()
    rows = []
    for name in [*ORDER, *sorted(set(methods) - set(ORDER))]:
        kind = methods[name]
        cost = f"{kind.forward_cost + kind.backward_cost:g} ×"
        needs = "yes" if kind.needs_train_data else "no"
        venue = VENUE.search(kind.paper)
        rows.append((f"[`{name}`]({name}.md)", kind.title, kind.adapts, needs, cost, venue[1] if venue else ""))
    return _table(("name", "title", "adapts", "needs training data", "cost per step", "published"), rows) + "\n"


def settings_page() -> str:
    """Return one page with all settings: LAW's first, then the shared ones, then those of the other methods."""
    methods = registered_methods()
    parts = [
        "# Settings",
        'Settings are keyword arguments of `driftlaw.adapt(model, "law", tau=0.6)`, entries of a preset file, and '
        "`--set law.tau=0.6` on the command line. `--set step.precision=float32` applies to all methods.",
        "## LAW",
        _settings_table(methods["law"].Config, own_settings(methods["law"])),
        "(small-batches)=\n## Small batches",
        "Accepted by every method with batch statistics.",
        _settings_table(
            BatchStatsSettings,
            [name for name in BatchStatsSettings.model_fields if name not in ExecutionSettings.model_fields],
        ),
        "(execution)=\n## Execution",
        "Accepted by every method. They change how a step runs, not what it computes.",
        _settings_table(ExecutionSettings, ExecutionSettings.model_fields),
    ]
    for name in ORDER[1:]:
        if name in methods and own_settings(methods[name]):
            parts += [f"## {methods[name].title}", _settings_table(methods[name].Config, own_settings(methods[name]))]
    return "\n\n".join(parts) + "\n"


# --- corruptions and commands -------------------------------------------------------------------------------------


def corruptions_page() -> str:
    """Return the page of all corruptions with their parameters."""
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
    head = ("name", "kind", "parameters", "severities 1–5, small images", "severities 1–5, large images")
    parts = [
        "# Corruptions",
        "The corruptions of Hendrycks and Dietterich, [*Benchmarking Neural Network Robustness to Common Corruptions "
        "and Perturbations*](https://arxiv.org/abs/1903.12261) (ICLR 2019). Fifteen make the benchmark; four are held "
        "out for [tuning](../guides/tuning.md).",
        "![Contact sheet: one image under nineteen corruptions at five severities](../images/corruptions.jpg)",
        'In Python: `driftlaw.corrupt(images, "fog", severity=3)`. For files:',
        "```sh\ndriftlaw corrupt photos/ foggy/ --name fog --severity 3\n"
        "driftlaw corrupt photo.png sheet.png --contact-sheet\n```",
        "Images with no side over 64 pixels use the parameters of CIFAR-C, larger ones those of ImageNet-C. Image *i* "
        "of a dataset gets the same corruption for every batch size, order and device.",
        "The published files of ImageNet-C are JPEG of quality 85. Corrupted images with a side over 64 pixels are "
        'therefore encoded and decoded once, with the same pixels as libjpeg\'s. `encoding="none"`, `driftlaw corrupt '
        "--no-encoding` and `--set stream.encoding=none` leave this out. The record of a run contains the encoding.",
        _table(head, rows),
    ]
    return "\n\n".join(parts) + "\n"


def _severities(rows: tuple[tuple[float, ...], ...]) -> str:
    return " · ".join(", ".join(f"{value:g}" for value in row) for row in rows)


def commands_page() -> str:
    """Return the help of every command."""
    root = typer.main.get_command(app)
    parts = [
        "# Commands",
        "Every command accepts `--help`. `--json` prints one JSON document on stdout; logs and progress go to stderr. "
        "Exit codes: 0 done, 1 failed, 2 wrong use, 3 partial results, 130 or 143 interrupted (state saved first).",
    ]
    for name, command in sorted(root.commands.items()):  # type: ignore[attr-defined]
        for path, leaf in _leaf_commands(name, command):
            parts += [f"## driftlaw {path}", _command_help(leaf), _options(leaf)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _leaf_commands(path: str, command: Any) -> list[tuple[str, Any]]:
    children = getattr(command, "commands", None)
    if not children:
        return [(path, command)]
    return [leaf for name, child in sorted(children.items()) for leaf in _leaf_commands(f"{path} {name}", child)]


def _command_help(command: Any) -> str:
    """Return the help text as Markdown; lines that are commands become code blocks."""
    text = inspect.cleandoc(command.help or "").replace("\b\n", "").replace("\f", "")
    text = re.sub(r"^\s*(?:Example: )?(?=(?:driftlaw|python) \S)", COMMAND, text, flags=re.MULTILINE)
    parts: list[str] = []
    for line in text.splitlines():
        is_command, was_command = line.startswith(COMMAND), bool(parts) and parts[-1].startswith("```sh")
        if is_command and was_command:
            parts[-1] += "\n" + line.removeprefix(COMMAND).strip()
        elif is_command:
            parts += ["```sh\n" + line.removeprefix(COMMAND).strip()]
        elif line.strip() or not was_command:
            parts += [line.strip()]
    return "\n".join(f"\n{part}\n```\n" if part.startswith("```sh") else part for part in parts)


def _options(command: Any) -> str:
    rows = []
    for option in command.params:
        if getattr(option, "hidden", False) or option.name == "help":
            continue
        is_option = option.opts[0].startswith("-")
        names = ", ".join(f"`{name}`" for name in option.opts) if is_option else f"`{option.name.upper()}`"
        rows.append((names, getattr(option, "help", "") or ""))
    return _table(("option", "meaning"), rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    escaped = [[str(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    lines = [head, ["---"] * len(head), *escaped]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
