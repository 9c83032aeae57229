"""What ``driftlaw tune`` chose, told from the files that it writes beside its records."""

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


def describe_choices(root: Path, folder: Path) -> list[str]:
    """Return a list in Markdown, a line a file of ``driftlaw tune`` in ``folder``; nothing where there is none.

    Args:
        root: the checkout, from which the lines link to the files.
        folder: where the files lie.

    Raises:
        DataError: a file of ``driftlaw tune`` lacks a field.
    """
    lines = []
    for path in sorted(folder.glob("*.json")):
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            if document.get("format") == TUNING_FORMAT:
                made = f"by `{told}`" if (told := tidy_command(document.get("command"))) else ""
                where = f"[what was tried]({path.relative_to(root).as_posix()})"
                lines.append(f"- {_describe(document)} ({', '.join(filter(None, (where, made)))}).")
        except (ValueError, KeyError, AttributeError) as error:
            raise DataError(f"{path} is not as `driftlaw tune` writes it ({error!r}): make it again") from error
    return ["\n".join(lines)] if lines else []


def _describe(document: Mapping[str, Any]) -> str:
    trials, method = document["trials"], document["method"]
    chosen = ", ".join(f"{name} {value_text(value)}" for name, value in document["chosen"].items())
    stays = document["chosen"] == trials[0]["tried"]  # the preset's own values are tried first
    told = "the preset's own: its row in the tables is the tuned one too" if stays else "not the preset's"
    tried = counted(len(trials), "trial")
    why = "erred least"
    tied = sum(trial["tied"] for trial in trials) if document.get("choose") == "gentlest" else 0
    if tied == 1:
        why = "erred least, beyond doubt"
    elif tied:
        why = f"was the gentlest of {tied} that cannot be told from the lowest"
    edges = document.get("at_the_edge") or []
    edge = f"; at the edge of what was tried: {escape(listed(edges))}" if edges else ""
    return f"{escape(document['preset'])}, {escape(method)}: of {tried} {escape(chosen)} {why}, {told}{edge}"
