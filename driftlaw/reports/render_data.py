"""CSV (one line per run) and JSON (the whole report) with unformatted numbers."""

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

from driftlaw.errors import printable
from driftlaw.records import RunRecord
from driftlaw.reports.columns import column_data, iou_means
from driftlaw.reports.contents import summarize
from driftlaw.reports.published import ComparedRow, compare_with_paper
from driftlaw.reports.result_table import Cost, ResultRow, ResultTable, TableValue
from driftlaw.reports.tables import make_run_row

REPORT_FORMAT = "driftlaw-report-1"


def render_csv(tables: Sequence[ResultTable], columns: Sequence[str]) -> str:
    """Return one line per run; domains that a run did not reach are empty."""
    lines = [
        {printable(name): _csv_cell(value) for name, value in _csv_line(table, row, record, columns).items()}
        for table in tables
        for row in table.rows
        for record in row.records
    ]
    names = list(dict.fromkeys(name for line in lines for name in line))
    after = names.index("finished") + 1  # domains of all tables follow this column
    names[after:] = sorted(names[after:], key=lambda name: not name.startswith("error:"))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def _csv_cell(value: Any) -> Any:
    """Return a value without control characters, and with an apostrophe if spreadsheets would read it as a formula."""
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t")) else text


def _csv_line(table: ResultTable, row: ResultRow, record: RunRecord, columns: Sequence[str]) -> dict[str, Any]:
    stream = record.header["stream"]
    run = make_run_row(record, table)
    return {
        "protocol": table.protocol.key[:8],
        "dataset": stream["dataset"]["name"],
        **{name: stream.get(name) for name in ("schedule", "severity", "batch_size")},
        "model": record.header["model"]["name"],
        "reset_on": record.header["reset_on"],
        "method": record.method,
        "label": row.label,
        "needs_source": row.needs_train_data,
        "settings": json.dumps(record.settings, sort_keys=True, ensure_ascii=False),
        "seed": record.seed,
        "finished": record.finished,
        **{f"error:{name}": value for name, value in _means(table.domains, run.domains).items()},
        **_means(table.summary_names, run.summaries),
        **{f"iou:{name}": value for name, value in iou_means(run).get("mean_iou_by_domain", {}).items()},
        **({"mean_iou": column_data(run, "miou")["mean"]} if iou_means(run) else {}),
        **{name: column_data(run, name)["mean"] for name in columns},
        **_cost(run.cost),
        "device": run.cost.device,
        "record": record.path.as_posix() if record.path else "",
    }


def render_json(tables: Sequence[ResultTable], command: str | None, columns: Sequence[str], *, compare: bool) -> str:
    """Return the whole report as one JSON document."""
    content = [_table(table, columns, compare=compare) for table in tables]
    document = {"format": REPORT_FORMAT, "command": command, "tables": content}
    return printable(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)) + "\n"


def _table(table: ResultTable, columns: Sequence[str], *, compare: bool) -> dict[str, Any]:
    header = table.rows[0].first.header
    content = {
        "protocol": {
            "key": table.protocol.key,
            "line": table.protocol.line,
            "stream": {name: value for name, value in header["stream"].items() if name != "seed"},
            "model": header["model"],
            "reset_on": header["reset_on"],
        },
        "summary": summarize(table),
        "domains": table.domains,
        "summaries": table.summary_names,
        "rows": [_row(table, row, columns) for row in table.rows],
        "notes": table.notes,
    }
    if compare:
        comparison = compare_with_paper(table)
        content["paper"] = {
            "dataset": comparison.dataset,
            "tables": comparison.tables,
            "departures": comparison.run_differences,
            "line": comparison.line,
            "rows": [_compared_row(table, line) for line in comparison.rows],
        }
    return content


def _row(table: ResultTable, row: ResultRow, columns: Sequence[str]) -> dict[str, Any]:
    difference, passes = row.vs_best, _rounded(row.cost.forward_passes)
    runs = [(record, make_run_row(record, table)) for record in row.records]
    return {
        "label": row.label,
        "method": row.method,
        "needs_source": row.needs_train_data,
        "settings": row.settings,
        "finished": row.finished,
        "seeds": row.seeds,
        "errors": dict(zip(table.domains, map(_value, row.domains), strict=True)),
        **dict(zip(table.summary_names, map(_value, row.summaries), strict=True)),
        **({"mean_iou": column_data(row, "miou"), **iou} if (iou := iou_means(row)) else {}),
        "difference_to_source": _rounded(row.difference),
        "difference_to_lowest": difference
        and {
            **{name: _rounded(getattr(difference, name)) for name in ("mean", "low", "high")},
            "seeds": difference.seeds,
            difference.noun: difference.units,
        },
        "cost": {"seconds_per_step": row.cost.seconds, "forward_units": passes, **_cost(row.cost)},
        **({"measures": {name: column_data(row, name) for name in columns}} if columns else {}),
        "runs": [
            {
                "seed": record.seed,
                "finished": record.finished,
                "errors": _means(table.domains, run.domains),
                **_means(table.summary_names, run.summaries),
                "commit": record.header.get("commit"),
                "versions": record.header.get("versions", {}),
                "device": run.cost.device,
                "record": record.path.as_posix() if record.path else None,
            }
            for record, run in runs
        ],
    }


def _compared_row(table: ResultTable, line: ComparedRow) -> dict[str, Any]:
    paper, names = line.published, table.summary_names
    ours = _means(table.domains, line.row.domains)
    errors = paper.errors if paper else {}
    return {
        "label": line.row.label,
        "method": line.row.method,
        "ours": _means(names, line.row.summaries),
        "paper": dict(zip(names, paper.summaries, strict=False)) if paper else None,
        "difference": dict(zip(names, map(_rounded, line.differences), strict=True)),
        "domains": {name: {"ours": ours[name], "paper": errors[name]} for name in errors if name in ours},
        **{f"paper_{name}": getattr(paper, name, None) for name in ("table", "network", "gflops")},
        "settings_not_the_papers": line.setting_differences,
    }


def _cost(cost: Cost) -> dict[str, float | None]:
    return {
        "seconds_per_step": cost.seconds,
        "forward_flops_per_image": cost.forward_flops,
        "step_flops_per_image": cost.step_flops,
        "peak_bytes": cost.peak_bytes,
    }


def _means(names: Sequence[str], values: Sequence[TableValue]) -> dict[str, float | None]:
    return {name: _rounded(value.mean) for name, value in zip(names, values, strict=True)}


def _value(value: TableValue) -> dict[str, Any]:
    return {"mean": _rounded(value.mean), "std": _rounded(value.spread), "mark": value.mark or None}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
