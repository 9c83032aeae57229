"""Tables as data: a CSV with a line a run, and a JSON document with everything."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

from driftlaw.records import RunRecord
from driftlaw.reports.cost import cost_of
from driftlaw.reports.protocol import device_name
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
    alone = make_run_row(record, table)
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
        "needs_source": row.needs_source,
        "settings": json.dumps(record.settings, sort_keys=True, ensure_ascii=False),
        "seed": record.seed,
        "finished": record.finished,
        **{f"error:{name}": _rounded(cell.mean) for name, cell in zip(table.domains, alone.domains, strict=True)},
        **{name: _rounded(cell.mean) for name, cell in zip(table.summaries, alone.summaries, strict=True)},
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
    }


def _row(table: Table, row: Row) -> dict[str, Any]:
    cost = cost_of(row)
    return {
        "label": row.label,
        "method": row.method,
        "needs_source": row.needs_source,
        "settings": row.settings,
        "finished": row.finished,
        "seeds": row.seeds,
        "errors": {name: _cell(cell) for name, cell in zip(table.domains, row.domains, strict=True)},
        **{name: _cell(cell) for name, cell in zip(table.summaries, row.summaries, strict=True)},
        "difference_to_source": _rounded(row.difference),
        "cost": {
            "seconds_per_step": cost.seconds,
            "forward_units": _rounded(cost.forward_units),
            "forward_flops_per_image": cost.forward_flops,
            "step_flops_per_image": cost.step_flops,
            "peak_bytes": cost.peak_bytes,
        },
        "runs": [_run(table, record) for record in row.records],
    }


def _cell(cell: Cell) -> dict[str, Any]:
    return {"mean": _rounded(cell.mean), "std": _rounded(cell.spread), "mark": cell.mark or None}


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
