"""Summaries of tuning files: which settings ``driftlaw tune`` chose, and how."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from driftlaw.errors import DataError
from driftlaw.records.tuning_file import TUNING_FORMAT
from driftlaw.reports.format import counted, listed, value_text
from driftlaw.reports.render_markdown import escape
from tools.results.commands import tidy_command


def describe_tuning(root: Path, folder: Path) -> list[str]:
    """Return a Markdown list with one line per tuning file in a folder; empty if there are none.

    Args:
        root: root of the checkout, to which links are relative.
        folder: folder with the files.

    Raises:
        DataError: a tuning file lacks a field.
    """
    lines = []
    for path in sorted(folder.glob("*.json")):
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            if document.get("format") == TUNING_FORMAT:
                command = f"`{text}`" if (text := tidy_command(document.get("command"))) else ""
                link = f"[all trials]({path.relative_to(root).as_posix()})"
                lines.append(f"- {_describe(document)} ({', '.join(filter(None, (link, command)))}).")
        except (ValueError, KeyError, AttributeError) as error:
            raise DataError(f"{path} is not a valid tuning file ({error!r}). Run `driftlaw tune` again.") from error
    return ["\n".join(lines)] if lines else []


def _describe(document: Mapping[str, Any]) -> str:
    trials = document["trials"]
    chosen = ", ".join(f"{name} {value_text(value)}" for name, value in document["chosen"].items())
    if document["chosen"] == trials[0]["tried"]:  # the preset's values are tried first
        origin = "the preset's own values, so that its row in the tables is also the tuned one"
    else:
        origin = "different from the preset"
    reason = "the lowest error"
    if document["choose"] == "gentlest":
        tied = sum(trial["tied"] for trial in trials)
        reason = "significantly the lowest error"
        if tied > 1:
            reason = f"the smallest learning rate of {tied} trials whose errors do not differ significantly"
    edges = document["at_the_edge"]
    edge = f"; at the boundary of the grid: {escape(listed(edges))}" if edges else ""
    name = f"{escape(document['preset'])}, {escape(document['method'])}"
    return f"{name}: of {counted(len(trials), 'trial')}, {escape(chosen)} had {reason} ({origin}{edge})"
