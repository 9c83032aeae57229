"""Tables as LaTeX: booktabs, a column a corruption as papers print them, best in bold, second underlined."""

from __future__ import annotations

from collections.abc import Sequence

from driftlaw.reports.format import MISSING, counted, difference_text, error_text, short_name
from driftlaw.reports.summary import KEY_LINE
from driftlaw.reports.tables import Cell, Row, Table

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "−": "$-$",
    "×": r"$\times$",
    "–": "--",
    "·": r"$\cdot$",
    "«": r"``",
    "»": r"''",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "\n": " ",
    "\r": " ",
}
_MARKS = {"best": r"\textbf{%s}", "second": r"\underline{%s}", "": "%s"}


def render_latex(tables: Sequence[Table], command: str | None) -> str:
    """Return a ``table*`` a protocol; the preamble it needs stands in the first comment."""
    opening = ["% needs \\usepackage{booktabs,graphicx,amssymb}"]
    if command:
        opening.append(f"% made from records by: {' '.join(command.split())}")
    return "\n".join(opening + [line for table in tables for line in _table(table)]) + "\n"


def escaped(text: str) -> str:
    r"""Return text that LaTeX prints as it stands.

    >>> escaped("law tau=0.6 & 100 %")
    'law tau=0.6 \\& 100 \\%'
    """
    return "".join(_SPECIAL.get(character, character) for character in text)


def _table(table: Table) -> list[str]:
    difference = 1 if table.baseline else 0
    return [
        "",
        r"\begin{table*}[t]",
        r"\centering",
        rf"\caption{{{escaped(table.protocol.name)}. {escaped(KEY_LINE)}}}",
        rf"\label{{tab:{table.protocol.key[:8]}}}",
        r"\smallskip",
        r"\setlength{\tabcolsep}{3pt}",
        r"\resizebox{\textwidth}{!}{%",
        rf"\begin{{tabular}}{{lc*{{{len(table.domains)}}}{{r}}{'c' * len(table.summaries)}{'r' * difference}}}",
        r"\toprule",
        _heading(table),
        r"\midrule",
        *[_row(table, row) for row in table.rows],
        r"\bottomrule",
        r"\end{tabular}}",
        rf"\par\smallskip\parbox{{\textwidth}}{{\footnotesize {_below(table)}}}",
        r"\end{table*}",
    ]


def _below(table: Table) -> str:
    notes = "".join(f" {escaped(note)}." for note in table.notes)
    return f"{escaped(table.protocol.line)}.{notes}"


def _heading(table: Table) -> str:
    turned = [rf"\rotatebox{{70}}{{{escaped(short_name(name))}}}" for name in table.domains]
    difference = ["vs source"] if table.baseline else []
    return _line(["Method", r"\rotatebox{70}{source-free}", *turned, *map(escaped, table.summaries), *difference])


def _row(table: Table, row: Row) -> str:
    cells = [_marked(cell, error_text(cell.mean)) for cell in row.domains]
    cells += [_marked(cell, _with_spread(cell)) for cell in row.summaries]
    difference = [escaped(difference_text(row.difference))] if table.baseline else []
    return _line([_label(row), r"$\times$" if row.needs_train_data else r"$\checkmark$", *cells, *difference])


def _label(row: Row) -> str:
    state = f" ({counted(len(row.seeds), 'seed', 'seeds')})" if row.finished else f" (unfinished: {row.progress})"
    return escaped(row.label) + state


def _with_spread(cell: Cell) -> str:
    return error_text(cell.mean) + ("" if cell.spread is None else rf"$\pm${cell.spread:.2f}")


def _marked(cell: Cell, text: str) -> str:
    return _MARKS[cell.mark] % ("--" if text == MISSING else text)


def _line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"
