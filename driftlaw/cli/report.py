"""``driftlaw report``: tables, figures and pages from records."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from driftlaw.records import RunRecord
    from driftlaw.reports.step_times import StepTimes

_STDOUT = Path("-")
_SUFFIXES = {".html": "html", ".htm": "html", ".md": "md", ".tex": "latex", ".csv": "csv", ".json": "json"}


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Records (.jsonl, .jsonl.gz), or folders that hold some; or records of benchmarks (.json). One record "
            "of `driftlaw bench step` beside runs gives their milliseconds."
        ),
    ],
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            help="html, md, brief (md), latex, csv, json or terminal; by default as --out ends, else html, with "
            "--compare md.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="The file to write, - for stdout. By default report.html; stdout for the rest."
        ),
    ] = None,
    methods: Annotated[str | None, typer.Option(help="Only these methods, with commas: source,law.")] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            help="More than error, with commas: error,first_round,last_round,ece,clean,worst,recovery,drift,ms,flops."
        ),
    ] = None,
    compare: Annotated[
        str | None, typer.Option(help="Whose figures to put beside ours: paper. In html, md, brief and json.")
    ] = None,
) -> None:
    """Make a report from the records of runs; runs of different protocols get a table each.

    The same records give the same bytes. Unfinished runs are marked and not ranked.

    Example: driftlaw report runs --format latex --methods source,tent,law --out table.tex

    Ours beside the paper's, with the difference: driftlaw report runs --compare paper

    What `driftlaw bench step | memory | facts | floor | scaling` wrote, as html or md: driftlaw report step.json

    Milliseconds of a benchmark beside the errors of runs: driftlaw report runs step.json --format md
    """
    from driftlaw.records import find_records, read_record
    from driftlaw.reports import build_report, check_format, make_tables, report_notes
    from driftlaw.reports.columns import parse_columns
    from driftlaw.reports.step_times import with_step_times

    format = format or (out and _SUFFIXES.get(out.suffix.lower())) or ("md" if compare else "html")
    check_format(format, compare)
    target = _target(out, format)
    if all(path.suffix == ".json" for path in runs):
        _refuse_options({"--methods": methods, "--columns": columns, "--compare": compare})
        _write(_bench_report(runs, format, _command(runs, format, out, None)), target, len(runs), "benchmark")
        return
    times = _step_times([path for path in runs if path.suffix == ".json"])
    records = [read_record(path) for path in find_records([path for path in runs if path.suffix != ".json"])]
    records = _chosen(records, methods)
    command = _command(runs, format, out, methods, columns, compare)
    text = build_report(records, format, command=command, columns=parse_columns(columns), compare=compare, times=times)
    tables = with_step_times(make_tables(records), times)
    if times and not any(table.timing for table in tables):
        typer.echo("note: the benchmark measured no step such as these runs': milliseconds are their own", err=True)
    for note in report_notes(tables):
        typer.echo(f"note: {note}", err=True)
    _write(text, target, len(records))


def _refuse_options(options: dict[str, str | None]) -> None:
    from driftlaw.errors import UsageError

    given = [name for name, value in options.items() if value is not None]
    if given:
        raise UsageError(f"{', '.join(given)}: goes with records of runs; a benchmark alone has no use for it")


def _step_times(paths: list[Path]) -> StepTimes | None:
    from driftlaw.errors import UsageError
    from driftlaw.reports.step_times import read_step_times

    if len(paths) > 1:
        named = ", ".join(map(str, paths))
        raise UsageError(f"{named}: the milliseconds of runs come from one benchmark; give one .json beside them")
    return read_step_times(paths[0]) if paths else None


def _bench_report(paths: list[Path], format: str, command: str) -> str:
    from benchmarks.report_page import build_bench_report
    from benchmarks.report_tables import read_bench

    return build_bench_report([read_bench(path) for path in paths], format, command=command)


def _target(out: Path | None, format: str) -> Path:
    from driftlaw.errors import UsageError

    target = out or (Path("report.html") if format == "html" else _STDOUT)
    if target != _STDOUT and target.is_dir():
        raise UsageError(f"--out {target} is a folder: give the name of the file to write in it")
    return target


def _chosen(records: list[RunRecord], methods: str | None) -> list[RunRecord]:
    from driftlaw.errors import unknown

    if methods is None:
        return records
    present = sorted({record.method for record in records})
    wanted = [name.strip() for name in methods.split(",") if name.strip()]
    for name in wanted or [methods]:
        if name not in present:
            raise unknown("method among these records", name, present)
    return [record for record in records if record.method in wanted]


def _command(
    runs: list[Path],
    format: str,
    out: Path | None,
    methods: str | None,
    columns: str | None = None,
    compare: str | None = None,
) -> str:
    """The command line that makes the same report again."""
    words = ["driftlaw", "report", *[run.as_posix() for run in runs], "--format", format]
    words += ["--methods", methods] if methods else []
    words += ["--columns", columns] if columns else []
    words += ["--compare", compare] if compare else []
    words += ["--out", out.as_posix()] if out else []
    return shlex.join(words)


def _write(text: str, target: Path, count: int, noun: str = "run") -> None:
    from driftlaw.errors import DataError
    from driftlaw.files import atomic_path

    if target == _STDOUT:
        typer.echo(text, nl=False)
        return
    try:
        with atomic_path(target) as temporary:
            temporary.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise DataError(f"cannot write {target}: {error.strerror or error}; choose another place with --out") from error
    typer.echo(f"{target}: a report of {count} {noun}{'' if count == 1 else 's'}", err=True)
