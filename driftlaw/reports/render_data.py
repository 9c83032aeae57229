"""Tables as data: a CSV with a line a run, and a JSON document with everything."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from driftlaw.records import RunRecord
from driftlaw.reports.columns import cell_data
from driftlaw.reports.cost import cost_of
from driftlaw.reports.protocol import device_name
from driftlaw.reports.published_rows import Compared, Comparison, compare_with_paper
from driftlaw.reports.statistics import Difference
from driftlaw.reports.summary import summarise
from driftlaw.reports.tables import Cell, Row, Table, make_run_row

REPORT_FORMAT = "driftlaw-report-1"


def render_csv(tables: Sequence[Table], command: str | None) -> str:
    """Return one line a method, settings and seed; a domain that a run did not see is left empty."""
    lines = [_csv_line(table, row, record) for table in tables for row in table.rows for record in row.records]
    columns = list(dict.fromkeys(name for line in lines for name in line if not name.startswith("error:")))
    domains = list(dict.fromkeys(name for line in lines for name in line if name.startswith("error:")))
    after = columns.index("finished") + 1
    text = io.StringIO()
    writer = csv.DictWriter(text, columns[:after] + domains + columns[after:], restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def _csv_line(table: Table, row: Row, record: RunRecord) -> dict[str, Any]:
    stream, model = record.header["stream"], record.header["model"]
    alone = replace(make_run_row(record, table), benched=row.benched, seconds=row.seconds)
    cost = cost_of(alone)
    return {
        "protocol": table.protocol.key[:8],
        "dataset": stream["dataset"]["name"],
        "schedule": stream["schedule"],
        "severity": stream.get("severity"),
        "batch_size": stream.get("batch_size"),
        "model": model["name"],
        "reset_on": record.header["reset_on"],
        "method": record.method,
        "label": row.label,
        "needs_source": row.needs_train_data,
        "settings": json.dumps(record.settings, sort_keys=True, ensure_ascii=False),
        "seed": record.seed,
        "finished": record.finished,
        **{f"error:{name}": _rounded(cell.mean) for name, cell in zip(table.domains, alone.domains, strict=True)},
        **{name: _rounded(cell.mean) for name, cell in zip(table.summaries, alone.summaries, strict=True)},
        **{name: cell_data(alone, name)["mean"] for name in table.columns},
        "seconds_per_step": cost.seconds,
        "forward_flops_per_image": cost.forward_flops,
        "step_flops_per_image": cost.step_flops,
        "peak_bytes": cost.peak_bytes,
        "device": cost.device,
        "record": record.path.as_posix() if record.path else "",
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def render_json(tables: Sequence[Table], command: str | None) -> str:
    """Return the whole report as one document."""
    document = {"format": REPORT_FORMAT, "command": command, "tables": [_table(table) for table in tables]}
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _table(table: Table) -> dict[str, Any]:
    first = table.rows[0].first.header
    stream = {name: value for name, value in first["stream"].items() if name != "seed"}
    return {
        "protocol": {
            "key": table.protocol.key,
            "line": table.protocol.line,
            "stream": stream,
            "model": first["model"],
            "reset_on": first["reset_on"],
        },
        "summary": summarise(table),
        "domains": list(table.domains),
        "summaries": list(table.summaries),
        "rows": [_row(table, row) for row in table.rows],
        "notes": list(table.notes),
        **({"paper": _comparison(compare_with_paper(table))} if table.partner else {}),
    }


def _comparison(comparison: Comparison) -> dict[str, Any]:
    return {
        "dataset": comparison.dataset,
        "tables": comparison.tables,
        "departures": list(comparison.departures),
        "line": comparison.line,
        "rows": [_compared(comparison.table, line) for line in comparison.rows],
    }


def _compared(table: Table, line: Compared) -> dict[str, Any]:
    theirs = line.theirs
    ours = {name: cell.mean for name, cell in zip(table.domains, line.row.domains, strict=True)}
    return {
        "label": line.row.label,
        "method": line.row.method,
        "ours": {name: _rounded(cell.mean) for name, cell in zip(table.summaries, line.row.summaries, strict=True)},
        "paper": None if theirs is None else dict(zip(table.summaries, theirs.summaries, strict=False)),
        "difference": {name: _rounded(gap) for name, gap in zip(table.summaries, line.differences, strict=True)},
        "domains": {
            name: {"ours": _rounded(ours[name]), "paper": value}
            for name, value in (theirs.errors if theirs else {}).items()
            if name in ours
        },
        "paper_table": theirs.table if theirs else None,
        "paper_network": theirs.network if theirs else None,
        "paper_gflops": theirs.gflops if theirs else None,
        "settings_not_the_papers": list(line.remarks),
    }


def _row(table: Table, row: Row) -> dict[str, Any]:
    cost = cost_of(row)
    return {
        "label": row.label,
        "method": row.method,
        "needs_source": row.needs_train_data,
        "settings": row.settings,
        "finished": row.finished,
        "seeds": row.seeds,
        "errors": {name: _cell(cell) for name, cell in zip(table.domains, row.domains, strict=True)},
        **{name: _cell(cell) for name, cell in zip(table.summaries, row.summaries, strict=True)},
        "difference_to_source": _rounded(row.difference),
        "difference_to_lowest": None if row.to_lowest is None else _difference(row.to_lowest),
        "cost": {
            "seconds_per_step": cost.seconds,
            "forward_units": _rounded(cost.forward_cost),
            "forward_flops_per_image": cost.forward_flops,
            "step_flops_per_image": cost.step_flops,
            "peak_bytes": cost.peak_bytes,
        },
        **({"measures": {name: cell_data(row, name) for name in table.columns}} if table.columns else {}),
        "runs": [_run(table, record) for record in row.records],
    }


def _cell(cell: Cell) -> dict[str, Any]:
    return {"mean": _rounded(cell.mean), "std": _rounded(cell.spread), "mark": cell.mark or None}


def _difference(difference: Difference) -> dict[str, Any]:
    return {
        "mean": _rounded(difference.mean),
        "low": _rounded(difference.low),
        "high": _rounded(difference.high),
        "seeds": difference.seeds,
        difference.noun: difference.units,
    }


def _run(table: Table, record: RunRecord) -> dict[str, Any]:
    alone = make_run_row(record, table)
    return {
        "seed": record.seed,
        "finished": record.finished,
        "errors": {name: _rounded(cell.mean) for name, cell in zip(table.domains, alone.domains, strict=True)},
        **{name: _rounded(cell.mean) for name, cell in zip(table.summaries, alone.summaries, strict=True)},
        "commit": record.header.get("commit"),
        "versions": record.header.get("versions", {}),
        "device": device_name(record),
        "record": record.path.as_posix() if record.path else None,
    }
