"""Errors published in the LAW paper, and their comparison with a result table.

The numbers are transcribed in ``published/*.toml``, one file per table of the paper. ``published/protocol.toml``
contains how the paper ran its streams.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from driftlaw.errors import unknown_name
from driftlaw.reports.format import counted, listed, value_text
from driftlaw.reports.result_table import ResultRow, ResultTable

FOLDER = Path(__file__).parent / "published"
TABLES = tuple(range(1, 11))
COMPARISONS = ("paper",)
LAW = "law"
_SEARCH_ORDER = (1, 2, 6, 7, 8, 3, 10, 5, 4, 9)  # main tables first, tables that vary a setting last


@dataclass(frozen=True)
class PublishedRow:
    """One row of a table of the paper; a value that the table does not contain is None or empty.

    Attributes:
        table: Number of the table.
        schedule: Schedule of the stream, ``continual`` or ``gradual``.
        dataset: Name of the preset, such as ``cifar10-c``.
        network: Name of the model in driftlaw.
        method: Name of the method in driftlaw.
        mean: Mean error over all domains, in percent.
        settings: Settings that the table varies, by their names in driftlaw.
        errors: Error per domain.
        highest: For a gradual stream, the mean error at the highest severity.
        spread: Value that the paper prints after ±.
        gflops: GFLOPs per image of the forward passes.
        change: Difference that the table prints in brackets.
    """

    table: int
    schedule: str
    dataset: str
    network: str
    method: str
    mean: float
    settings: Mapping[str, float] = field(default_factory=dict)
    errors: Mapping[str, float] = field(default_factory=dict)
    highest: float | None = None
    spread: float | None = None
    gflops: float | None = None
    change: float | None = None

    @property
    def summaries(self) -> tuple[float | None, ...]:
        """The values that correspond to the summary columns of a result table."""
        return (self.mean, self.highest) if self.schedule == "gradual" else (self.mean,)


@dataclass(frozen=True)
class PublishedTable:
    """A table of the paper: its number, source, contents in words, rows, and contradictions between its numbers."""

    number: int
    source: str
    about: str
    rows: tuple[PublishedRow, ...]
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class PublishedDataset:
    """How the paper ran one dataset.

    ``records`` are the names of this dataset in record headers, ``encoding`` is that of the published files.
    """

    name: str
    records: Sequence[str]
    network: str
    images_per_domain: int
    batch_size: int
    law: Mapping[str, Any]
    encoding: str = "none"


@dataclass(frozen=True)
class PublishedProtocol:
    """How the paper ran its streams."""

    source: str
    severity: int
    order: str
    reset_on: str
    seeds: int
    corruptions: Sequence[str]
    datasets: Mapping[str, PublishedDataset]
    networks: Mapping[str, str]

    def dataset_of(self, recorded: str) -> PublishedDataset | None:
        """Return the dataset for a name in a record header, or None if the paper does not use it."""
        return next((dataset for dataset in self.datasets.values() if recorded in dataset.records), None)

    def network_of(self, recorded: str) -> str:
        """Return the model of the paper for a name in a record header."""
        return self.networks.get(recorded, recorded)


@cache
def paper_table(number: int) -> PublishedTable:
    """Return a table of the paper.

    >>> [row.mean for row in paper_table(1).rows if (row.dataset, row.method) == ("cifar10-c", "law")]
    [15.7]
    """
    if number not in TABLES:
        raise unknown_name("table of the paper", str(number), [str(known) for known in TABLES])
    content = tomllib.loads((FOLDER / f"table{number}.toml").read_text(encoding="utf-8"))
    rows = []
    for row in content["rows"]:
        errors = dict(zip(content["corruptions"], row["errors"], strict=True)) if "errors" in row else {}
        rows.append(PublishedRow(table=number, schedule=content["schedule"], **{**row, "errors": errors}))
    return PublishedTable(number, content["source"], content["about"], tuple(rows), tuple(content.get("remarks", ())))


@cache
def paper_protocol() -> PublishedProtocol:
    """Return how the paper ran its experiments."""
    content = tomllib.loads((FOLDER / "protocol.toml").read_text(encoding="utf-8"))
    shared = content.pop("law")
    datasets = {
        name: PublishedDataset(name, **{**values, "law": {**shared, **values["law"]}})
        for name, values in content.pop("datasets").items()
    }
    return PublishedProtocol(**content, datasets=datasets)


@dataclass(frozen=True)
class ComparedRow:
    """A row of a result table and the published row for it.

    Attributes:
        row: Our row.
        published: The row of the paper, or None if the paper has none.
        setting_differences: Settings of our row that differ from the paper's.
    """

    row: ResultRow
    published: PublishedRow | None
    setting_differences: tuple[str, ...] = ()

    @property
    def summaries(self) -> tuple[float | None, ...]:
        """The published value per summary column, None where there is none."""
        values = self.published.summaries if self.published else ()
        return (*values, *[None] * len(self.row.summaries))[: len(self.row.summaries)]

    @property
    def differences(self) -> tuple[float | None, ...]:
        """Our error minus the published one per summary column, in percentage points."""
        return tuple(
            None if ours.mean is None or value is None else ours.mean - value
            for ours, value in zip(self.row.summaries, self.summaries, strict=True)
        )


@dataclass(frozen=True)
class Comparison:
    """A result table compared with the paper.

    Attributes:
        table: Our table.
        dataset: Name of the dataset in the paper, or None if the streams are not comparable.
        rows: One entry per row of our table.
        run_differences: What differs from the paper for all rows.
    """

    table: ResultTable
    dataset: str | None
    rows: tuple[ComparedRow, ...]
    run_differences: tuple[str, ...]

    @property
    def tables(self) -> list[int]:
        """Numbers of the tables of the paper that contain the published rows."""
        return sorted({line.published.table for line in self.rows if line.published})

    @property
    def same_network(self) -> bool:
        """True if published rows were found and they are for the same model as ours."""
        recorded = self.table.rows[0].first.header["model"]["name"]
        return paper_protocol().network_of(recorded) in {line.published.network for line in self.rows if line.published}

    @property
    def line(self) -> str:
        """What a reader must know before comparing the numbers."""
        if self.dataset is None:
            return f"Not comparable with the paper, which has no such stream: {listed(self.run_differences)}."
        tables = f"{'Tables' if len(self.tables) > 1 else 'Table'} {listed(self.tables)}" if self.tables else "no table"
        differences = "; ".join(self.run_differences) or "only the training of the model and the random numbers"
        return f"Paper: {tables} ({self.dataset}). Differences from the paper: {differences}."


def compare_with_paper(table: ResultTable, *, prefer: Sequence[int] = ()) -> Comparison:
    """Return the rows of a result table with the rows of the paper that they can be compared with.

    Args:
        table: The result table.
        prefer: Numbers of tables of the paper to search first, such as the table that an experiment reproduces.
    """
    stream = table.rows[0].first.header["stream"]
    dataset = paper_protocol().dataset_of(stream["dataset"]["name"])
    reasons = ([] if dataset else [f"dataset {stream['dataset']['name']}"]) + _stream_differences(table)
    if dataset is None or reasons:
        return Comparison(table, None, tuple(ComparedRow(row, None) for row in table.rows), tuple(reasons))
    rows = tuple(_compare_row(row, dataset, stream["schedule"], prefer) for row in table.rows)
    return Comparison(table, dataset.name, rows, tuple(_run_differences(table, dataset, rows)))


def _stream_differences(table: ResultTable) -> list[str]:
    """Return what makes the stream a different one from the paper's, so that errors must not be compared."""
    header, paper = table.rows[0].first.header, paper_protocol()
    stream, reset_on = header["stream"], header["reset_on"]
    schedule, severity, rounds, order = map(stream.get, ("schedule", "severity", "rounds", "order"))
    count = counted(len(table.domains), "domain")
    agreements = {
        f"schedule {schedule}": schedule in ("continual", "gradual"),
        f"{count} instead of the fifteen corruptions in their order": list(stream.get("corruptions") or table.domains)
        == list(paper.corruptions),
        f"severity {value_text(severity)}": schedule != "continual" or severity == paper.severity,
        f"{rounds} rounds": rounds in (None, 1),
        f"order {order}": order in (None, paper.order),
        f"reset on {reset_on}": reset_on == paper.reset_on,
    }
    return [difference for difference, agrees in agreements.items() if not agrees]


def _compare_row(row: ResultRow, dataset: PublishedDataset, schedule: str, prefer: Sequence[int]) -> ComparedRow:
    network = paper_protocol().network_of(row.first.header["model"]["name"])
    published = [
        line
        for number in dict.fromkeys([*prefer, *_SEARCH_ORDER])
        for line in paper_table(number).rows
        if (line.schedule, line.dataset, line.method) == (schedule, dataset.name, row.method)
    ]
    same_network = [line for line in published if line.network == network]
    published = same_network or [line for line in published if line.network == dataset.network]
    law = dataset.law if row.method == LAW else {}
    for line in published:
        if not _setting_differences(row.settings, {**law, **line.settings}):
            return ComparedRow(row, line)
    # The paper did not run these settings: compare with its default settings and report the differences.
    differences = [
        f"{name} {value_text(row.settings[name])} (paper {value_text(value)})"
        for name, value in _setting_differences(row.settings, law).items()
    ]
    default = (line for line in published if not _setting_differences(line.settings, law))
    return ComparedRow(row, next(default, None), tuple(differences))


def _setting_differences(settings: Mapping[str, Any], expected: Mapping[str, Any]) -> dict[str, Any]:
    """Return the expected settings that have another value; a setting that is not recorded has its default."""
    return {name: value for name, value in expected.items() if name in settings and settings[name] != value}


def _run_differences(table: ResultTable, dataset: PublishedDataset, rows: Sequence[ComparedRow]) -> list[str]:
    """Return what differs from the paper: model, images, batch size, pixels, seeds, precision."""
    header, paper = table.rows[0].first.header, paper_protocol()
    stream, recorded = header["stream"], header["model"]["name"]
    network = paper.network_of(recorded)
    expected = sorted({line.published.network for line in rows if line.published} or {dataset.network})
    images, batch_size, pixels = map(stream.get, ("images_per_domain", "batch_size", "pixels"))
    seeds = sorted({len(row.seeds) for row in table.rows if row.finished})
    precisions = sorted({str(row.settings["precision"]) for row in table.rows if "precision" in row.settings})
    generated = pixels and stream.get("archive") is None
    differences = {
        f"model {recorded} (paper {listed(expected)})": network not in expected,
        f"model {recorded}, a variant of {network}": network in expected and recorded != network,
        "our own split of the images": "our split" in str(stream["dataset"].get("origin") or ""),
        f"{images or 0:,} images per domain (paper {dataset.images_per_domain:,})": images
        not in (None, dataset.images_per_domain),
        f"{batch_size or 0:,} images per batch (paper {dataset.batch_size:,})": batch_size
        not in (None, dataset.batch_size),
        f"corruptions {pixels} by driftlaw, not the published files": generated,
        f"images not encoded as the published files ({dataset.encoding})": generated
        and stream.get("encoding", "none") != dataset.encoding,
        f"{listed(seeds)} {'seed' if seeds == [1] else 'seeds'} (paper {paper.seeds} runs)": seeds
        not in ([], [paper.seeds]),
        f"precision {listed(precisions)}": precisions,
    }
    return [difference for difference, differs in differences.items() if differs]
