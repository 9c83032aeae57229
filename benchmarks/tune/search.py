"""Tuning: coordinate and grid search for settings on the four held-out corruptions, never on the benchmark's 15."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks.tune.files import Trial
from driftlaw.corruptions import list_corruptions
from driftlaw.errors import UsageError, unknown_name
from driftlaw.experiments.run_spec import RunSpec, plan_run, preset_with_weights
from driftlaw.methods import registered_methods
from driftlaw.methods.law_defaults import PUBLISHED
from driftlaw.records import RunRecord
from driftlaw.records.run_record import EXECUTION_SETTINGS
from driftlaw.reports.statistics import bootstrap_interval
from driftlaw.settings import merge, parse, parse_assignments, read_preset
from driftlaw.streams.schedules import CLEAN

SWEEPS = 2  # over all settings in a coordinate search; the second rarely changes more than one of them
FACTORS = {"learning_rate": (0.2, 0.5, 1.0, 2.0), "consistency_weight": (0.3, 1.0, 3.0)}  # times the preset's value
TAUS = (0.6, 0.8, 1.0, 1.3)
LONG_ENOUGH = 0.8  # times the length of the benchmark's stream
STREAM_ROUNDS = 4  # four corruptions four times are about as long as the benchmark's fifteen

SEARCHES = ("coordinate", "grid")
CHOICES = ("lowest", "gentlest")

Values = dict[str, Any]


@dataclass(frozen=True)
class Tuning:
    """A search: the runs of one method with the preset's settings, the values to try, and the trials so far.

    Attributes:
        specs: one run per seed, on a stream of held-out corruptions.
        grid: values of each setting, in the order in which settings are searched.
        start: the preset's values of these settings, which are tried first.
        benchmark: run of the preset on the benchmark's corruptions, for the length of its stream.
        search: ``coordinate`` changes one setting at a time, ``grid`` tries all combinations.
        choose: ``lowest`` chooses the trial with the lowest mean error. ``gentlest`` chooses the smallest learning rate
            whose error is not significantly higher (95 % paired bootstrap).
        trials: finished trials, in order.
    """

    specs: tuple[RunSpec, ...]
    grid: Mapping[str, Sequence[Any]]
    start: Values
    benchmark: RunSpec
    search: str = "coordinate"
    choose: str = "lowest"
    trials: list[Trial] = field(default_factory=list)

    @property
    def file_name(self) -> str:
        """Name of the tuning file: PRESET.json for LAW, PRESET-METHOD.json for other methods."""
        first = self.specs[0]
        return f"{first.preset}.json" if first.method == "law" else f"{first.preset}-{first.method}.json"

    def candidates(self, name: str) -> list[Any]:
        """Return the values of a setting that are tried: those of the grid and the preset's."""
        return list(dict.fromkeys([*self.grid[name], self.start[name]]))

    @property
    def max_trials(self) -> int:
        """Largest possible number of trials."""
        if self.search == "grid":
            return len({*itertools.product(*self.grid.values()), tuple(self.start.values())})
        return 1 + SWEEPS * sum(len(self.candidates(name)) - 1 for name in self.grid)

    @property
    def lowest(self) -> Trial:
        """Trial with the lowest error; of equal ones the first, which is closest to the preset."""
        return min(self.trials, key=lambda trial: trial.mean_error)

    @property
    def tied(self) -> list[Trial]:
        """Trials that are not significantly worse than the lowest, including it."""
        lowest = np.asarray(self.lowest.errors)
        return [trial for trial in self.trials if bootstrap_interval(np.asarray(trial.errors) - lowest)[0] <= 0.0]

    @property
    def choice(self) -> Trial:
        """Chosen trial."""
        if self.choose == "lowest":
            return self.lowest
        return min(self.tied, key=lambda trial: (trial.values.get("learning_rate", 0.0), trial.mean_error))

    def at_boundary(self, values: Mapping[str, Any]) -> list[str]:
        """Return the numeric settings whose value is the lowest or highest that was tried."""
        return [
            name
            for name, value in values.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
            if len(tried := self.candidates(name)) > 1 and value in (min(tried), max(tried))
        ]


def plan_tuning(
    preset: str,
    *,
    method: str = "law",
    grid: Sequence[str] = (),
    search: str = "coordinate",
    choose: str = "lowest",
    seeds: str = "1",
    limit: int | None = None,
    rounds: int = STREAM_ROUNDS,
    model: str | None = None,
    assignments: Sequence[str] = (),
) -> Tuning:
    """Return the search of ``driftlaw tune``.

    Args:
        preset: a benchmark. Its corruptions are replaced by the held-out ones unless it names some itself.
        method: method whose settings are tuned.
        grid: such as ``tau=0.6,0.8``. If empty, LAW has a default grid around the preset's values.
        search: ``coordinate`` or ``grid``.
        choose: ``lowest`` or ``gentlest``.
        seeds: such as ``1-3``; the error of a trial is the mean over them.
        limit: maximum number of images per domain.
        rounds: how often a continual stream repeats. Settings that adapt fast win short streams and may lose long ones.
        model: weights to use instead of the preset's.
        assignments: values of ``--set``.
    """
    for kind, value, valid in (("search", search, SEARCHES), ("value of --choose", choose, CHOICES)):
        if value not in valid:
            raise unknown_name(kind, value, valid)
    specs = plan_run(preset, assignments=assignments, limit=limit, methods=method, seeds=seeds, model=model)
    if len({spec.method for spec in specs}) != 1:
        raise UsageError(f"--method {method} names several methods. Tune one method at a time.")
    benchmark = plan_run(preset, assignments=assignments, methods=method)[0]
    original = read_preset(preset).get("model", {}).get("weights")
    name = preset_with_weights(specs[0].preset, specs[0].model["weights"], original)
    stream = {"corruptions": "held_out", **specs[0].stream}
    if stream.get("schedule", "continual") == "continual" and rounds > 1:
        stream |= {"schedule": "recurring", "rounds": rounds}
    config = parse(registered_methods()[method].Config, specs[0].settings, where=f"method {method}")
    fallback = {name: published[10] for name, published in PUBLISHED.items()}  # if the preset does not state them
    dumped = config.model_dump(mode="json").items()
    settings = {name: fallback.get(name) if value is None else value for name, value in dumped}
    values = _parse_grid(grid, method, settings) if grid else _default_grid(method, settings)
    held_out = tuple(replace(spec, preset=name, stream=stream) for spec in specs)
    start = {name: settings[name] for name in values}
    return Tuning(held_out, values, start, benchmark, search, choose)


def _default_grid(method: str, settings: Mapping[str, Any]) -> dict[str, Sequence[Any]]:
    if not {"learning_rate", "tau", "consistency_weight"} <= set(settings):
        raise UsageError(f"{method} has no default grid. Pass one, such as --grid learning_rate=1e-4,1e-3.")
    scaled = {name: [float(f"{x * settings[name]:.6g}") for x in factors] for name, factors in FACTORS.items()}
    return {"learning_rate": scaled["learning_rate"], "tau": TAUS, "consistency_weight": scaled["consistency_weight"]}


def _parse_grid(texts: Sequence[str], method: str, settings: Mapping[str, Any]) -> dict[str, Sequence[Any]]:
    grid: dict[str, Sequence[Any]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        name = name.strip().removeprefix(f"{method}.")
        if not equals or not values.strip():
            raise UsageError(f"--grid {text} has no values. Expected a setting and values, such as tau=0.6,0.8.")
        if name not in settings:
            raise unknown_name(f"setting of {method}", name, list(settings))
        if name in grid:
            raise UsageError(f"--grid names {name} twice. Pass all of its values at once: {name}=A,B,C.")
        grid[name] = [parse_assignments([f"value={value.strip()}"])["value"] for value in values.split(",")]
    return grid


def run_search(tuning: Tuning, run_trials: Callable[[Sequence[RunSpec]], list[RunRecord]]) -> Iterator[Trial]:
    """Search, add every trial to ``tuning.trials`` and yield it.

    Args:
        tuning: what to search.
        run_trials: executes runs that do not depend on each other, and returns their records in the same order.
    """
    for group in _values_to_try(tuning):
        known = [trial.values for trial in tuning.trials]
        new = [values for number, values in enumerate(group) if values not in known + group[:number]]
        specs = []
        for values in new:
            label = " ".join(f"{name}={value}" for name, value in values.items())
            specs += [replace(spec, settings=merge(spec.settings, values), label=label) for spec in tuning.specs]
        records, seeds = run_trials(specs) if specs else [], len(tuning.specs)
        for number, values in enumerate(new):
            tuning.trials.append(_trial(values, records[number * seeds : (number + 1) * seeds]))
            yield tuning.trials[-1]


def _values_to_try(tuning: Tuning) -> Iterator[list[Values]]:
    """Yield groups of values to try. In a coordinate search, a group depends on the trials of those before it."""
    yield [dict(tuning.start)]
    if tuning.search == "grid":
        yield [dict(zip(tuning.grid, values, strict=True)) for values in itertools.product(*tuning.grid.values())]
        return
    for _ in range(SWEEPS):
        before = tuning.lowest
        for name in tuning.grid:
            yield [{**tuning.lowest.values, name: value} for value in tuning.candidates(name)]
        if tuning.lowest is before:
            return


def _trial(values: Values, records: Sequence[RunRecord]) -> Trial:
    for record in records:
        check_held_out(record.header["stream"], f"The record {record.path}")
    names = list(records[0].error_by_domain)
    return Trial(
        values=values,
        mean_error=round(fmean(record.mean_error for record in records), 4),
        error_by_domain={name: round(fmean(record.error_by_domain[name] for record in records), 4) for name in names},
        records=tuple(record.path.name for record in records if record.path),
        errors=tuple(tuple(100.0 * line["wrong"] / line["images"] for line in record.batches) for record in records),
    )


def check_held_out(recipe: Mapping[str, Any], where: str = "The stream") -> None:
    """Raise UsageError unless every domain of a stream is a held-out corruption, or clean beside some of these.

    Args:
        recipe: ``recipe()`` of the stream rather than its preset, because it has resolved names such as 'all'.
        where: start of the message.
    """
    allowed = list_corruptions("held_out")
    found = list(dict.fromkeys(part for name in recipe["corruptions"] for part in name.split("+")))
    others = [name for name in found if name not in [*allowed, CLEAN]] or [CLEAN] * (found == [CLEAN])
    if others:
        is_reported = bool(set(others) & set(list_corruptions()))
        reason = "on which results are reported" if is_reported else "which are not held-out corruptions"
        raise UsageError(
            f"{where} contains {', '.join(others)}, {reason}. Settings may only be tuned on {', '.join(allowed)}. "
            "Remove the corruptions from the preset and from --set, or name some of these."
        )


def warn_short_stream(batches: int, benchmark: int) -> str:
    """Return a warning if a stream is much shorter than the benchmark's, else an empty string.

    >>> warn_short_stream(800, 750)
    ''
    """
    if batches >= LONG_ENOUGH * benchmark:
        return ""
    return (
        f"The stream has {batches} batches, the benchmark's {benchmark}. Settings that adapt fast win short streams "
        "and may lose long ones. Remove --limit, or increase --rounds."
    )


def tuning_document(tuning: Tuning, *, command: str, folder: str, sha256: str = "") -> Values:
    """Return the content of a tuning file, see ``driftlaw.records.tuning_file``.

    Args:
        tuning: the finished search.
        command: command line of the search.
        folder: folder of the records, relative to the file.
        sha256: hash of the model's weights.
    """
    first, choice, tied = tuning.specs[0], tuning.choice, tuning.tied
    settings = merge(first.settings, choice.values)
    return {
        "command": command,
        "preset": first.preset,
        "method": first.method,
        # How steps are executed is no result of tuning and must not change how a table is made.
        "settings": {name: value for name, value in settings.items() if name not in EXECUTION_SETTINGS},
        "chosen": choice.values,
        "at_the_edge": tuning.at_boundary(choice.values),
        "mean_error": choice.mean_error,
        "search": tuning.search,
        "choose": tuning.choose,
        "grid": {name: list(values) for name, values in tuning.grid.items()},
        "seeds": [spec.seed for spec in tuning.specs],
        "stream": dict(first.stream),
        "model": dict(first.model) | ({"sha256": sha256} if sha256 else {}),
        "folder": folder,
        "trials": [trial.to_json(tied=trial in tied) for trial in tuning.trials],
    }
