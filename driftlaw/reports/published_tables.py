"""The paper's printed numbers and how they were measured, read from ``published/*.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from driftlaw.errors import unknown

FOLDER = Path(__file__).parent / "published"
TABLES = tuple(range(1, 11))


@dataclass(frozen=True)
class PaperRow:
    """One printed figure and what belongs to it; None where the table does not print it.

    Attributes:
        table: the table's number.
        schedule: how its stream ran, ``continual`` or ``gradual``.
        dataset: a preset's name, such as ``cifar10-c``.
        network: one of our names.
        method: one of our names.
        mean: error in per cent, over all domains.
        settings: what the table varies, by our names of settings.
        errors: error of every domain.
        highest: of a gradual stream, the mean over its highest severity.
        spread: what the paper prints behind ±.
        gflops: billions of operations of the forward passes an image.
        change: the difference that the table prints in brackets.
    """

    table: int
    schedule: str
    dataset: str
    network: str
    method: str
    mean: float
    settings: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    errors: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    highest: float | None = None
    spread: float | None = None
    gflops: float | None = None
    change: float | None = None

    @property
    def summaries(self) -> tuple[float | None, ...]:
        """The figures that stand beside a table's summary columns."""
        return (self.mean, self.highest) if self.schedule == "gradual" else (self.mean,)


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper.

    Attributes:
        number: its number.
        source: where it stands.
        about: what it shows, in our words.
        schedule: how its streams ran, ``continual`` or ``gradual``.
        rows: its figures.
        remarks: where its figures contradict each other.
    """

    number: int
    source: str
    about: str
    schedule: str
    rows: tuple[PaperRow, ...]
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class PaperDataset:
    """How the paper ran one dataset: network, images a domain, images a batch and LAW's settings."""

    name: str
    records: tuple[str, ...]
    network: str
    images_per_domain: int
    batch_size: int
    law: Mapping[str, Any]


@dataclass(frozen=True)
class PaperProtocol:
    """How the paper ran its streams."""

    severity: int
    order: str
    reset_on: str
    seeds: int
    corruptions: tuple[str, ...]
    datasets: Mapping[str, PaperDataset]
    networks: Mapping[str, str]

    def dataset_of(self, recorded: str) -> PaperDataset | None:
        """Return the dataset that a record's name of its images belongs to."""
        return next((dataset for dataset in self.datasets.values() if recorded in dataset.records), None)

    def network_of(self, recorded: str) -> str:
        """Return the paper's network behind a record's name of it."""
        return self.networks.get(recorded, recorded)


@cache
def paper_table(number: int) -> PaperTable:
    """Return a table of the paper.

    >>> [row.mean for row in paper_table(1).rows if (row.dataset, row.method) == ("cifar10-c", "law")]
    [15.7]
    """
    if number not in TABLES:
        raise unknown("table of the paper", str(number), [str(known) for known in TABLES])
    content = tomllib.loads((FOLDER / f"table{number}.toml").read_text(encoding="utf-8"))
    rows = tuple(_row(content, line) for line in content["rows"])
    return PaperTable(
        number=content["table"],
        source=content["source"],
        about=content["about"],
        schedule=content["schedule"],
        rows=rows,
        remarks=tuple(content.get("remarks", ())),
    )


def _row(content: Mapping[str, Any], line: Mapping[str, Any]) -> PaperRow:
    named = dict(line)
    if "errors" in named:
        named["errors"] = MappingProxyType(dict(zip(content["corruptions"], named["errors"], strict=True)))
    return PaperRow(table=content["table"], schedule=content["schedule"], **named)


@cache
def paper_protocol() -> PaperProtocol:
    """Return how the paper measured what its tables print."""
    content = tomllib.loads((FOLDER / "protocol.toml").read_text(encoding="utf-8"))
    datasets = {
        name: PaperDataset(
            name=name,
            records=tuple(facts["records"]),
            network=facts["network"],
            images_per_domain=facts["images_per_domain"],
            batch_size=facts["batch_size"],
            law=MappingProxyType({**content["law"], **facts["law"]}),
        )
        for name, facts in content["datasets"].items()
    }
    return PaperProtocol(
        severity=content["severity"],
        order=content["order"],
        reset_on=content["reset_on"],
        seeds=content["seeds"],
        corruptions=tuple(content["corruptions"]),
        datasets=MappingProxyType(datasets),
        networks=MappingProxyType(content["networks"]),
    )
