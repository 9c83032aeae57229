"""Settings chosen on the four held-out corruptions: what is tried, what is chosen, and the fifteen left unseen."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, Literal

from driftlaw.base import Stream
from driftlaw.corruptions import list_corruptions
from driftlaw.errors import UsageError, collected, unknown
from driftlaw.experiments.run_spec import Cell, name_with_weights, plan_run
from driftlaw.methods import registered_methods
from driftlaw.records import RunRecord
from driftlaw.records.run_record import EXECUTION_SETTINGS
from driftlaw.records.tuning_file import TUNING_FORMAT
from driftlaw.reports.statistics import bootstrap_interval
from driftlaw.settings import merge, parse, parse_assignments, read_preset

ROUNDS = 2  # over all coordinates; the second seldom moves more than one of them
FACTORS = {"learning_rate": (0.2, 0.5, 1.0, 2.0), "consistency_weight": (0.3, 1.0, 3.0)}  # of the preset's own
TAUS = (0.6, 0.8, 1.0, 1.3)
COME_ROUND = 4  # times: four corruptions are then a stream about as long as the fifteen, where haste may not pay
LONG_ENOUGH = 0.8  # of the benchmark's length

Values = dict[str, Any]
Grid = Mapping[str, Sequence[Any]]
RunCells = Callable[[Sequence[Cell]], list[RunRecord]]
"""Runs cells, or finds their finished records, and returns a record each in the same order."""


@dataclass(frozen=True)
class Tuning:
    """What is to be tuned: the cells of one method with the preset's own settings, and which values are tried.

    Attributes:
        cells: one a seed, on a stream of held-out corruptions.
        grid: the values of each setting, in the order in which settings are searched.
        start: the preset's own values of those settings; they are tried first.
        benchmark: the stream of the preset that the choice is for, all of its images in it.
        search: ``coordinate`` changes one setting at a time, ``grid`` tries every combination.
        choose: ``lowest`` takes the trial that errs least, ``gentlest`` the smallest learning rate among those that
            cannot be told from it.
    """

    cells: tuple[Cell, ...]
    grid: Grid
    start: Values
    benchmark: Cell
    search: Literal["coordinate", "grid"] = "coordinate"
    choose: Literal["lowest", "gentlest"] = "lowest"

    @property
    def file_name(self) -> str:
        """The name of the file that tells what was tried: PRESET.json for LAW, PRESET-METHOD.json for another."""
        first = self.cells[0]
        return f"{first.preset}.json" if first.method == "law" else f"{first.preset}-{first.method}.json"

    def cells_of(self, values: Mapping[str, Any]) -> list[Cell]:
        """Return the cells of one trial, one a seed."""
        label = " ".join(f"{name}={value}" for name, value in values.items())
        return [replace(cell, settings=merge(cell.settings, values), label=label) for cell in self.cells]

    @property
    def most_trials(self) -> int:
        """How many trials there are at most."""
        sizes = [len(_with_start(self, name)) for name in self.grid]
        if self.search == "grid":
            combinations = list(itertools.product(*self.grid.values()))
            return len(combinations) + (tuple(self.start.values()) not in combinations)
        return 1 + ROUNDS * sum(size - 1 for size in sizes)


@dataclass(frozen=True)
class Trial:
    """Some values that were tried: per cent wrong on held-out corruptions, and the records that say so.

    ``errors`` is per cent wrong batch by batch, a row a seed.
    """

    values: Values
    mean_error: float
    error_by_domain: dict[str, float]
    records: tuple[str, ...]
    errors: tuple[tuple[float, ...], ...] = ()


@dataclass
class Outcome:
    """What has been tried so far, and how the choice among it is made, as ``Tuning.choose`` says."""

    choose: Literal["lowest", "gentlest"] = "lowest"
    trials: list[Trial] = field(default_factory=list)

    @property
    def lowest(self) -> Trial:
        """The trial with the lowest error; of equals the one tried first, which is nearer to the preset."""
        return min(self.trials, key=lambda trial: trial.mean_error)

    @property
    def tied(self) -> list[Trial]:
        """The trials that cannot be told from the lowest: the interval of their paired difference holds zero."""
        return [trial for trial in self.trials if not _is_above(trial, self.lowest)]

    @property
    def choice(self) -> Trial:
        """The lowest, or the gentlest of those that cannot be told from it."""
        if self.choose == "lowest":
            return self.lowest
        return min(self.tied, key=lambda trial: (trial.values.get("learning_rate", 0.0), trial.mean_error))


def _is_above(trial: Trial, other: Trial) -> bool:
    """Tell whether a trial errs more than another beyond doubt, batch by batch of the same streams."""
    differences = [
        [own - lower for own, lower in zip(*sheets, strict=True)]
        for sheets in zip(trial.errors, other.errors, strict=True)
    ]
    return bootstrap_interval(differences)[0] > 0.0


# --- what is tuned ---------------------------------------------------------------------------------------------------


def plan_tuning(
    preset: str,
    *,
    method: str = "law",
    grid: Sequence[str] = (),
    search: str = "coordinate",
    choose: str = "lowest",
    seeds: str = "1",
    limit: int | None = None,
    rounds: int = COME_ROUND,
    network: str | None = None,
    assignments: Sequence[str] = (),
) -> Tuning:
    """Return what ``driftlaw tune`` asks for; a stream that is not of held-out corruptions alone is refused.

    Args:
        preset: a benchmark; its corruptions are replaced by the held-out ones where it does not name any.
        method: whose settings are tuned.
        grid: such as ``tau=0.6,0.8``; for LAW a grid around the preset's values where left out.
        search: ``coordinate`` or ``grid``.
        choose: ``lowest`` or ``gentlest``.
        seeds: such as ``1-3``; a trial's error is the mean over them.
        limit: images a domain.
        rounds: how often a continual stream comes round; what adapts fastest may win a short one and lose a long one.
        network: weights in place of the preset's own.
        assignments: ``--set`` of the command line.
    """
    if search not in ("coordinate", "grid"):
        raise unknown("search", search, ("coordinate", "grid"))
    if choose not in ("lowest", "gentlest"):
        raise unknown("way to choose", choose, ("lowest", "gentlest"))
    cells = plan_run(preset, assignments=assignments, limit=limit, methods=method, seeds=seeds, network=network)
    if len({cell.method for cell in cells}) != 1:
        raise UsageError(f"--method {method}: one method is tuned at a time")
    benchmark = plan_run(preset, assignments=assignments, methods=method)[0]
    own = read_preset(preset).get("model", {}).get("weights")
    name = name_with_weights(cells[0].preset, cells[0].model["weights"], own)
    cells = [replace(cell, preset=name, stream=_held_out_stream(cell.stream, rounds)) for cell in cells]
    kind = registered_methods()[method].Config
    settings = parse(kind, cells[0].settings, where=f"method {method}").model_dump(mode="json")
    chosen = _parse_grid(grid, method, settings) if grid else _default_grid(method, settings)
    return Tuning(tuple(cells), chosen, {name: settings[name] for name in chosen}, benchmark, search, choose)


def _held_out_stream(stream: Mapping[str, Any], rounds: int) -> dict[str, Any]:
    again = {"schedule": "recurring", "rounds": rounds} if rounds > 1 else {}
    is_continual = stream.get("schedule", "continual") == "continual"
    return {"corruptions": "held_out", **stream, **(again if is_continual else {})}


def _default_grid(method: str, settings: Mapping[str, Any]) -> Grid:
    if not {"learning_rate", "tau", "consistency_weight"} <= set(settings):
        raise UsageError(f"there is no grid for {method}: give one, such as --grid learning_rate=1e-4,1e-3")
    around = {
        name: [float(f"{factor * settings[name]:.6g}") for factor in factors] for name, factors in FACTORS.items()
    }
    return {"learning_rate": around["learning_rate"], "tau": TAUS, "consistency_weight": around["consistency_weight"]}


def _parse_grid(texts: Sequence[str], method: str, settings: Mapping[str, Any]) -> Grid:
    grid: dict[str, list[Any]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        name = name.strip().removeprefix(f"{method}.")
        if not equals or not values.strip():
            raise UsageError(f"--grid {text}: expected a setting and its values, such as tau=0.6,0.8,1.0")
        if name not in settings:
            raise unknown(f"setting of {method}", name, list(settings))
        if name in grid:
            raise UsageError(f"--grid names {name} twice: give all of its values at once, {name}=A,B,C")
        grid[name] = [_value(part) for part in values.split(",")]
    return grid


def _value(text: str) -> Any:
    return parse_assignments([f"value={text.strip()}"])["value"]


# --- what may be looked at -------------------------------------------------------------------------------------------


def refuse_benchmark(stream: Stream) -> None:
    """Raise unless every domain of a stream is a held-out corruption, whatever the preset that it came from is called.

    The stream itself is asked what it will hand out: names such as «all» are corruptions by then.
    """
    recipe = stream.recipe()
    if "corruptions" not in recipe:
        raise UsageError(f"a {type(stream).__name__} does not tell its corruptions: settings cannot be tuned on it")
    _refuse(recipe["corruptions"], "the stream")


def _refuse(names: Iterable[str], where: str) -> None:
    allowed = list_corruptions("held_out")
    found = [name for name in dict.fromkeys(names) if name not in allowed]
    if found:
        reported = "on which results are reported" if set(found) & set(list_corruptions()) else "none of the held-out"
        raise UsageError(
            f"{where} holds {', '.join(found)}, {reported}: settings are chosen on {', '.join(allowed)} alone; leave "
            "the corruptions out of the preset and of --set, or name some of these"
        )


def warn_of_haste(batches: int, benchmark: int) -> str:
    """Return what to say of a stream that is much shorter than the benchmark's, in batches; else nothing.

    >>> warn_of_haste(800, 750)
    ''
    """
    if batches >= LONG_ENOUGH * benchmark:
        return ""
    return (
        f"this stream is {batches} batches long, the benchmark's {benchmark}: what learns fastest wins a short stream "
        "and may lose a long one; leave --limit out, or raise --rounds"
    )


# --- the search ------------------------------------------------------------------------------------------------------


def tune(tuning: Tuning, run_cells: RunCells, *, told: Callable[[Outcome], None] = lambda outcome: None) -> Outcome:
    """Try values until the search is over; return all that was tried.

    Args:
        tuning: what is tuned.
        run_cells: runs the cells of a trial, or of several.
        told: called after every trial, to show how far things have come.
    """
    outcome = Outcome(tuning.choose)
    searched = _combinations(tuning) if tuning.search == "grid" else _coordinates(tuning, outcome)
    for together in searched:
        for values in together:
            if values not in [trial.values for trial in outcome.trials]:
                outcome.trials.append(_trial(values, run_cells(tuning.cells_of(values))))
                told(outcome)
    return outcome


def _combinations(tuning: Tuning) -> Iterator[list[Values]]:
    yield [dict(tuning.start)]
    yield [dict(zip(tuning.grid, values, strict=True)) for values in itertools.product(*tuning.grid.values())]


def _coordinates(tuning: Tuning, outcome: Outcome) -> Iterator[list[Values]]:
    """Yield the values of one setting after the other, the others at the best so far; ``outcome`` grows meanwhile."""
    yield [dict(tuning.start)]
    for _ in range(ROUNDS):
        before = outcome.lowest
        for name in tuning.grid:
            best = outcome.lowest.values
            yield [{**best, name: value} for value in _with_start(tuning, name)]
        if outcome.lowest is before:
            return


def _with_start(tuning: Tuning, name: str) -> list[Any]:
    values = list(dict.fromkeys(tuning.grid[name]))
    return values if tuning.start[name] in values else [*values, tuning.start[name]]


def at_the_edge(tuning: Tuning, values: Mapping[str, Any]) -> list[str]:
    """Return the settings whose value is the lowest or the highest that was tried: a wider grid may find a better."""
    numbers = {name: _with_start(tuning, name) for name in tuning.grid if _is_number(values[name])}
    return [name for name, tried in numbers.items() if len(tried) > 1 and values[name] in (min(tried), max(tried))]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _trial(values: Values, records: Sequence[RunRecord]) -> Trial:
    for record in records:
        _refuse(record.header["stream"]["corruptions"], f"the record {record.path}")
    names = list(records[0].error_by_domain)
    return Trial(
        values=values,
        mean_error=round(fmean(record.mean_error for record in records), 4),
        error_by_domain={name: round(fmean(record.error_by_domain[name] for record in records), 4) for name in names},
        records=tuple(record.path.name for record in records if record.path),
        errors=tuple(tuple(100.0 * line["wrong"] / line["images"] for line in record.batches) for record in records),
    )


# --- what is written -------------------------------------------------------------------------------------------------


def tuning_document(tuning: Tuning, outcome: Outcome, *, command: str, folder: str, sha256: str = "") -> dict[str, Any]:
    """Return what was tried and what is chosen, as plain data.

    Args:
        tuning: what was tuned.
        outcome: all that was tried.
        command: what it was started with.
        folder: where the records lie, as seen from the file.
        sha256: of the network's weights.
    """
    first, choice, tied = tuning.cells[0], outcome.choice, outcome.tied
    return {
        "format": TUNING_FORMAT,
        "command": command,
        "preset": first.preset,
        "method": first.method,
        "settings": _for_a_run(merge(first.settings, choice.values)),
        "chosen": choice.values,
        "at_the_edge": at_the_edge(tuning, choice.values),
        "mean_error": choice.mean_error,
        "search": tuning.search,
        "choose": tuning.choose,
        "grid": {name: list(values) for name, values in tuning.grid.items()},
        "seeds": [cell.seed for cell in tuning.cells],
        "stream": dict(first.stream),
        "model": dict(first.model) | ({"sha256": sha256} if sha256 else {}),
        "folder": folder,
        "trials": [
            {
                "tried": trial.values,
                "mean_error": trial.mean_error,
                "error_by_domain": trial.error_by_domain,
                "records": list(trial.records),
                "tied": trial in tied,
            }
            for trial in outcome.trials
        ],
    }


def _for_a_run(settings: Mapping[str, Any]) -> Values:
    """Return settings without those of how a step is run: tuning in a hurry must not change how a table is made."""
    return {name: value for name, value in settings.items() if name not in EXECUTION_SETTINGS}


def check_networks(records: Iterable[RunRecord | None], sha256: str) -> None:
    """Refuse to go on from trials that were made with other weights of the same name."""
    others = [
        f"{record.path}: {str(record.header['model'].get('sha256'))[:8]}, here {sha256[:8]}"
        for record in records
        if record is not None and record.header["model"].get("sha256") != sha256
    ]
    if others:
        raise collected("these trials were made with other weights of the same name (choose another --out):", others)
