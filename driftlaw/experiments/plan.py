"""From the cells of an experiment to what is to be done: what is there, what can be run, what is missing."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from driftlaw.errors import UsageError, collected
from driftlaw.experiments.assets import Stock, has_stand_in, with_embedded, with_network
from driftlaw.experiments.paper import without_doubles
from driftlaw.experiments.run_spec import Cell, weights_of
from driftlaw.files import atomic_path
from driftlaw.records import read_record

SHOWN = 5  # problems of one kind in one message


@dataclass(frozen=True)
class Known:
    """A finished record: where it is, and the sha256 of the weights that it was made with."""

    path: Path
    weights_sha256: str


@dataclass
class Prospect:
    """What a command has before it.

    Attributes:
        cells: all that the experiment is made of here; stand-ins are in the place of what they stand in for.
        finished: their records that are there, by the place a run would write them to.
        borrowed: records of the same cells in the folder of another experiment, by the same.
        to_run: the cells without a record, which can be run.
        left_out: the cells that cannot, with the reason.
        stood_in: a line for every benchmark that the embedded default stands in for.
    """

    cells: list[Cell] = field(default_factory=list)
    finished: dict[Path, Known] = field(default_factory=dict)
    borrowed: dict[Path, Known] = field(default_factory=dict)
    to_run: list[Cell] = field(default_factory=list)
    left_out: list[tuple[Cell, str]] = field(default_factory=list)
    stood_in: list[str] = field(default_factory=list)

    def reasons(self) -> dict[str, list[Cell]]:
        """Return why cells are left out, and which."""
        grouped: dict[str, list[Cell]] = {}
        for cell, reason in self.left_out:
            grouped.setdefault(reason, []).append(cell)
        return grouped


def prepare(
    cells: Sequence[Cell], out: Path, stock: Stock, *, network: str | None = None, again: bool = False
) -> Prospect:
    """Return what is to be done for some cells; nothing is written.

    Where nothing of a benchmark has a record and nothing of it can be run, the embedded default stands in for it, if it
    is of the same dataset.

    Args:
        cells: of one experiment.
        out: the folder of all experiments' records.
        stock: what lies on this machine.
        network: weights to take in place of every cell's own; they must be there.
        again: act as if there were no records.
    """
    if network is not None:
        if problem := stock.network(weights_of(network)).problem:
            raise UsageError(f"--network {network}: {problem}")  # nothing stands in for what a person has named
        cells = without_doubles(with_network(cells, network, stock))
    prospect = Prospect()
    for preset in dict.fromkeys(cell.preset for cell in cells):
        group = [cell for cell in cells if cell.preset == preset]
        _look_at(group, prospect, out, stock, again, replaceable=network is None)
    _refuse_other_networks(prospect, out, stock)
    return prospect


def _look_at(group: list[Cell], prospect: Prospect, out: Path, stock: Stock, again: bool, *, replaceable: bool) -> None:
    known = {} if again else _records_of(group, out)
    if replaceable and not known and all(has_stand_in(cell) and stock.problems(cell) for cell in group):
        problem = "; ".join(stock.problems(group[0]))
        prospect.stood_in.append(
            f"{group[0].preset} cannot be run here ({problem}): the embedded network and images stand in for it, "
            "and errors are not those of the paper's benchmark"
        )
        group = without_doubles(with_embedded(cell) for cell in group if not cell.tuned)
        known = {} if again else _records_of(group, out)
    for cell in group:
        sink = cell.sink(out)
        prospect.cells.append(cell)
        if sink in known:
            is_own = known[sink].path.parent == sink.parent
            (prospect.finished if is_own else prospect.borrowed)[sink] = known[sink]
        elif problems := stock.all_problems(cell):
            prospect.left_out.append((cell, "; ".join(problems)))
        else:
            prospect.to_run.append(cell)


def _records_of(cells: Sequence[Cell], out: Path) -> dict[Path, Known]:
    return {cell.sink(out): known for cell in cells if (known := _record_of(cell, out))}


def _record_of(cell: Cell, out: Path) -> Known | None:
    """Return a cell's finished record: its own, else that of the same cell in another experiment."""
    elsewhere = sorted(out.glob(f"*/{cell.preset}/{cell.file_name}*")) if out.is_dir() else []
    valid = {place.name for place in cell.places(out)}
    candidates = [*cell.places(out), *(path for path in elsewhere if path.name in valid)]
    found = (read_record(path) for path in candidates if path.exists() and path.stat().st_size)
    record = next((record for record in found if record.finished), None)
    if record is None or record.path is None:
        return None
    return Known(record.path, str(record.header["model"].get("sha256", "")))


def _refuse_other_networks(prospect: Prospect, out: Path, stock: Stock) -> None:
    """Refuse to take records for finished that were made with other weights of the same name."""
    problems = []
    for cell in prospect.cells:
        known = prospect.finished.get(cell.sink(out)) or prospect.borrowed.get(cell.sink(out))
        own = stock.network(cell.model["weights"]).sha256
        if known and own and known.weights_sha256 != own:
            problems.append(f"{known.path}: {known.weights_sha256[:8]}, here {own[:8]}")
    if problems:
        shown = problems[:SHOWN] + ([f"and {len(problems) - SHOWN} more"] if len(problems) > SHOWN else [])
        heading = "these records were made with other weights of the same name (--again replaces them, --out OTHER):"
        raise collected(heading, shown)


def bring_borrowed(prospect: Prospect) -> None:
    """Copy records of other experiments to where this one has them: every experiment's folder is whole."""
    for sink, known in prospect.borrowed.items():
        target = sink.with_name(known.path.name)
        with atomic_path(target) as temporary:
            shutil.copyfile(known.path, temporary)
        prospect.finished[sink] = replace(known, path=target)
    prospect.borrowed.clear()
