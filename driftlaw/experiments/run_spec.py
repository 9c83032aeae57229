"""A cell: one stream, one network, one method with its settings, one seed; plain data that knows its record."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from driftlaw.datasets import ARCHIVES, dataset_info
from driftlaw.errors import UsageError, unknown
from driftlaw.methods import list_methods, registered_methods
from driftlaw.records import RunRecord, read_record
from driftlaw.records.jsonl import content_hash
from driftlaw.settings import merge, parse_assignments, read_preset
from driftlaw.streams import StreamSettings

Table = Mapping[str, Any]

EMBEDDED = "embedded"


@dataclass(frozen=True)
class Cell:
    """What one run is made of, in the words of a preset; the rest follows from it.

    Attributes:
        preset: the preset's name, or the name of what stands in for it; the record's file begins with it.
        method: the method's name.
        settings: the method's settings, those that are not at their default.
        seed: of stream and adapter.
        stream: the table ``[stream]``, without ``source``.
        model: the table ``[model]``.
        source: the dataset whose train split goes to methods that need it; the stream's own where None.
        measures: what is measured beside error and cost.
        experiment: the name of a table or figure; its records lie in a folder of that name. Empty for a plain run.
        label: for people: what tells the cell from others of its method.
        tuned: whether the settings were chosen for the cell's network, and fit no other.
    """

    preset: str
    method: str
    settings: Table
    seed: int
    stream: Table
    model: Table
    source: str | None = None
    measures: tuple[str, ...] = ()
    experiment: str = ""
    label: str = field(default="", compare=False)
    tuned: bool = field(default=False, compare=False)

    @property
    def title(self) -> str:
        """The cell in a few words, for a line of progress."""
        return " ".join(part for part in (self.preset, self.method, self.label, f"seed {self.seed}") if part)

    # --- the training data -------------------------------------------------------------------------------------------

    @property
    def needs_train_data(self) -> bool:
        """Whether the method is handed training data."""
        return registered_methods()[self.method].needs_train_data

    @property
    def source_dataset(self) -> str:
        """The dataset whose train split is the source: what an archive was made from, where the stream is one."""
        name = self.source or self.stream.get("dataset", StreamSettings().dataset)
        return ARCHIVES[name].dataset if name in ARCHIVES else str(name)

    # --- the record --------------------------------------------------------------------------------------------------

    @property
    def file_name(self) -> str:
        """The record's name, which tells cells of different streams, networks and settings apart."""
        parts: list[Any] = [self.stream, self.model, self.settings]
        if self.source and self.needs_train_data:
            parts.append(self.source)
        if self.measures:
            parts.append(sorted(self.measures))
        return f"{self.preset}-{self.method}-seed{self.seed}-{content_hash(parts)[:8]}.jsonl"

    def sink(self, out: Path) -> Path:
        """Return where the record is written: in ``out`` itself, or in its EXPERIMENT/PRESET."""
        folder = out / self.experiment / self.preset if self.experiment else out
        return folder / self.file_name

    def places(self, out: Path) -> list[Path]:
        """Return where a record of the cell may lie: as it is written, or compressed."""
        sink = self.sink(out)
        return [sink, sink.with_name(sink.name + ".gz")]

    def finished_record(self, out: Path) -> RunRecord | None:
        """Return the record of the finished run, None where there is none yet."""
        found = (read_record(path) for path in self.places(out) if path.exists() and path.stat().st_size)
        return next((record for record in found if record.finished), None)


# --- other networks --------------------------------------------------------------------------------------------------


def weights_of(network: str) -> str:
    """Return what ``load_model`` takes for a network that a person names: ``embedded`` is short for the default's."""
    return str(read_preset(EMBEDDED)["model"]["weights"]) if network == EMBEDDED else network


def with_weights(cell: Cell, weights: str) -> Cell:
    """Return the cell with other weights, under a name that tells it from the benchmark's own."""
    own = cell.model["weights"]
    label = "" if cell.label == own != weights else cell.label  # one that is the network's name goes with it
    name = name_with_weights(cell.preset, weights, own)
    return replace(cell, preset=name, model=dict(cell.model) | {"weights": weights}, label=label)


def name_with_weights(preset: str, weights: str, own: str | None) -> str:
    """Return what a benchmark is called with some weights: by its own name with its own.

    >>> name_with_weights("cifar10-c", "trained here/wrn_28_2.safetensors", "wrn_28_10-cifar10")
    'cifar10-c-wrn_28_2'
    """
    if weights == own:
        return preset
    stem = Path(weights).stem if weights.endswith((".safetensors", ".pt", ".pth", ".ckpt")) else weights
    return f"{preset}-{re.sub(r'[^A-Za-z0-9_.]+', '-', stem)}"


# --- what `driftlaw run` asks for ------------------------------------------------------------------------------------


def check_source_exists(cells: Sequence[Cell]) -> None:
    """Refuse methods that need training data where the dataset has none, before anything is read."""
    for name in dict.fromkeys(cell.source_dataset for cell in cells if cell.needs_train_data):
        if name.startswith("archive:") or "train" not in dataset_info(name).splits:
            needy = list(
                dict.fromkeys(cell.method for cell in cells if cell.needs_train_data and cell.source_dataset == name)
            )
            raise UsageError(
                f"the training data is needed by {', '.join(needy)}, and {name} has none: name the dataset that the "
                "network was trained on, such as --set stream.source=cifar10, or take source-free methods alone"
            )


def plan_run(
    preset: str,
    *,
    assignments: Sequence[str] = (),
    limit: int | None = None,
    methods: str | None = None,
    seeds: str = "1",
    measures: Sequence[str] = (),
    network: str | None = None,
) -> list[Cell]:
    """Return the cells that ``driftlaw run`` asks for: every method with every seed.

    Args:
        preset: a name, a TOML file, or several laid over each other: ``A+B``.
        assignments: ``--set`` of the command line: ``law.tau=0.6``, ``stream.severity=3``, ``step.precision=bf16``.
        limit: images a domain.
        methods: names with commas; all of the preset where None.
        seeds: such as ``1-5``.
        measures: what is measured beside error and cost.
        network: weights in place of the preset's own.
    """
    tables, changes = read_preset(preset), _changes(assignments)
    stream = merge(tables.get("stream", {}), changes.pop("stream", {}))
    source = stream.pop("source", None)
    if limit is not None:
        stream["limit"] = limit
    model = merge(tables.get("model", {}), changes.pop("model", {}))
    if network is not None:
        model["weights"] = weights_of(network)
    if not tables.get("stream") and not model:
        raise UsageError(
            f"the preset {preset} changes methods alone: lay it over another one, such as cifar10-c+{preset}"
        )
    if "weights" not in model:
        raise UsageError(f"the preset {preset} names no weights: add them under [model], or --set model.weights=PATH")
    chosen = methods.split(",") if methods else list(tables.get("methods", {})) or list_methods()
    common = merge(tables.get("step", {}), changes.pop("step", {}))
    _refuse_unknown_methods(chosen, changes)
    cells = []
    for method in chosen:
        settings = merge(merge(common, tables.get("methods", {}).get(method, {})), changes.get(method, {}))
        parts = (stream, model, source, tuple(measures))
        cells += [Cell(Path(preset).stem, method, settings, seed, *parts) for seed in parse_seeds(seeds)]
    check_source_exists(cells)
    return cells


def _changes(assignments: Sequence[str]) -> dict[str, Any]:
    changes = parse_assignments(assignments)
    for name, table in changes.items():
        if not isinstance(table, dict):
            raise UsageError(f"--set {name}={table}: expected one of its settings, such as {name}.SETTING={table}")
    return changes


def _refuse_unknown_methods(chosen: Sequence[str], changes: Table) -> None:
    valid = list_methods()
    for name in [*chosen, *changes]:
        if name not in valid:
            raise unknown("method", name, valid if name in chosen else [*valid, "step", "stream", "model"])


def parse_seeds(text: str) -> list[int]:
    """Read ``1``, ``1,2,3`` or ``1-5``.

    >>> parse_seeds("1-3,7")
    [1, 2, 3, 7]
    """
    seeds: list[int] = []
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        if not low.isdigit() or (dash and not high.isdigit()):
            raise UsageError(f"--seeds {text}: expected numbers such as 1 or 1,2,3 or 1-5")
        if dash and int(high) < int(low):
            raise UsageError(f"--seeds {text}: {part.strip()} goes down; write {high}-{low}")
        seeds += range(int(low), int(high if dash else low) + 1)
    return seeds
