"""``driftlaw report``: tables, figures and pages from run records."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from driftlaw.cli import options as opt
from driftlaw.cli.console import echo

if TYPE_CHECKING:
    from driftlaw.reports import ResultTable

_STDOUT = Path("-")
_FORMAT_OF_SUFFIX = {".html": "html", ".htm": "html", ".md": "md", ".tex": "latex", ".csv": "csv", ".json": "json"}


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run records (.jsonl, .jsonl.gz), or folders that contain them.")],
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            help="html, md, brief (short Markdown table), latex, csv, json or terminal. Default: from the suffix of "
            "--out; otherwise md with --compare, and html without.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Output file, or - for stdout. Default: report.html for html, stdout for the others."
        ),
    ] = None,
    methods: Annotated[
        str | None, typer.Option(help="Comma-separated method names, such as source,law (default: all).")
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            help="Additional metrics, comma-separated: error, miou, ece, clean, first_round, last_round, worst, "
            "recovery, drift, agreement, ms, flops (default for html and md: those of `driftlaw run --metrics`)."
        ),
    ] = None,
    compare: Annotated[
        str | None,
        typer.Option(help="'paper' shows published results next to yours. For html, md, brief and json."),
    ] = None,
    images: Annotated[
        bool,
        typer.Option(
            "--images/--no-images",
            help="Show an image per domain in html, if the dataset is on this machine. Nothing is downloaded.",
        ),
    ] = True,
    data_dir: opt.DataDir = None,
) -> None:
    """Create a report from run records. Runs with different protocols get separate tables.

    The same records and images give the same bytes. Unfinished runs are marked and not ranked.

    Example: driftlaw report runs --format latex --methods source,tent,law --out table.tex

    Compare with the results of the paper: driftlaw report runs --compare paper
    """
    from driftlaw.errors import DataError, UsageError, unknown_name
    from driftlaw.files import atomic_path
    from driftlaw.records import find_records, read_record
    from driftlaw.reports import build_report, check_format, make_tables
    from driftlaw.reports.columns import parse_columns

    if format is None and out and out.suffix and out.suffix.lower() not in _FORMAT_OF_SUFFIX:
        hint = (
            "For a PDF, write .html and print the page from a browser." if out.suffix == ".pdf" else "Or pass --format."
        )
        raise UsageError(f"--out {out}: expected a file name that ends in {', '.join(_FORMAT_OF_SUFFIX)}. {hint}")
    format = format or (out and _FORMAT_OF_SUFFIX.get(out.suffix.lower())) or ("md" if compare else "html")
    names = parse_columns(columns)
    check_format(format, compare=compare, columns=names)
    target = out or (Path("report.html") if format == "html" else _STDOUT)
    if target.is_dir():
        raise UsageError(f"--out {target} is a folder. Pass the path of a file to write.")

    records = [read_record(path) for path in find_records(runs)]
    if methods is not None:
        present = sorted({record.method for record in records})
        selected = [name.strip() for name in methods.split(",") if name.strip()]
        for name in selected or [methods]:
            if name not in present:
                raise unknown_name("method in these records", name, present)
        records = [record for record in records if record.method in selected]

    words = ["driftlaw", "report", *[run.as_posix() for run in runs], "--format", format]
    for option, value in (("--methods", methods), ("--columns", columns), ("--compare", compare)):
        words += [option, value] if value else []
    words += ["--out", out.as_posix()] if out else []
    words += [] if images else ["--no-images"]
    tables = make_tables(records)
    samples = _sample_images(tables, data_dir) if images and format == "html" else {}
    text = build_report(tables, format, command=shlex.join(words), columns=names, compare=compare, samples=samples)
    for note in (note for table in tables for note in table.notes):
        echo(f"note: {note}", err=True)
    if target == _STDOUT:
        typer.echo(text, nl=False)
        return
    try:
        with atomic_path(target) as temporary:
            temporary.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise DataError(f"Cannot write {target}: {error.strerror or error}. Choose another path with --out.") from error
    echo(f"{target}: report of {len(records)} run{'' if len(records) == 1 else 's'}", err=True)


def _sample_images(tables: Sequence[ResultTable], data_dir: Path | None) -> dict[str, dict[str, bytes]]:
    """Return an image per domain by protocol key, for streams that can be rebuilt here; the same images only once."""
    from driftlaw.errors import DriftlawError
    from driftlaw.streams.samples import sample_images

    samples: dict[str, dict[str, bytes]] = {}
    for table in tables:
        try:
            images = sample_images(table.rows[0].first.header["stream"], data_dir=data_dir)
        except (DriftlawError, LookupError, OSError, TypeError, ValueError):
            continue  # data that is not here, or the recipe of someone's own stream
        if images not in samples.values():
            samples[table.protocol.key] = images
    return samples
