"""The paper's tables and figures as variations of a benchmark's preset. ``paper.toml`` lists them."""

import shlex
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from driftlaw.base import preset_settings
from driftlaw.errors import DataError, UsageError, combined_error, unknown_name
from driftlaw.experiments.run_spec import RunSpec, preset_with_weights, resolve_weights
from driftlaw.records.tuning_file import read_tuning
from driftlaw.settings import Settings, merge, read_preset, read_toml

LAW = "law"
DATASETS = ("cifar10-c", "cifar100-c", "imagenet-c")
LIMITS = {"imagenet-c": 5000}  # images per domain, as in RobustBench; the other benchmarks use all


class Row(Settings):
    """What some runs of an experiment change in the preset.

    Attributes:
        label: distinguishes the runs from others of the same method.
        settings: merged over the preset's settings of the method.
        stream: merged over ``[stream]``.
        model: merged over ``[model]``.
        methods: methods of this row; those of the experiment if empty.
        settings_from: method whose settings in the preset are used; the method itself if empty.
    """

    label: str = ""
    settings: dict[str, Any] = Field(default_factory=dict)
    stream: dict[str, Any] = Field(default_factory=dict)
    model: dict[str, Any] = Field(default_factory=dict)
    methods: tuple[str, ...] = ()
    settings_from: str = ""


class Experiment(Settings):
    """A table or figure of the paper.

    Attributes:
        name: such as ``table1``.
        title: what it shows.
        methods: methods that are run for each row.
        rows: variations of the preset.
        with_tuned: LAW with the settings that ``driftlaw tune`` chose gets a second row, if there are any.
        datasets: benchmarks in the paper.
        possible: benchmarks it can be run on.
        seeds: seeds the paper averages over; one for figures of layer weights.
    """

    name: str
    title: str
    methods: tuple[str, ...]
    rows: tuple[Row, ...] = (Row(),)
    with_tuned: bool = False
    datasets: tuple[str, ...] = DATASETS
    possible: tuple[str, ...] = DATASETS
    seeds: str = "1-5"


EXPERIMENTS = {
    name: Experiment(name=name, **table) for name, table in read_toml(Path(__file__).with_name("paper.toml")).items()
}


def find_experiment(name: str) -> Experiment:
    """Return the experiment of that name. The error for an unknown name suggests the nearest one."""
    if name not in EXPERIMENTS:
        raise unknown_name("experiment", name, list(EXPERIMENTS))
    return EXPERIMENTS[name]


def plan_experiment(
    name: str,
    *,
    datasets: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    seeds: Sequence[int],
    limit: int | None = None,
    tuning: Path | None = None,
    model: str | None = None,
    sha256_of: Callable[[str], str] = lambda weights: "",
    metrics: Sequence[str] = (),
) -> list[RunSpec]:
    """Return the runs of an experiment, by benchmark, then by row, then by seed.

    Args:
        name: key of ``EXPERIMENTS``.
        datasets: benchmarks; those of the paper if None.
        methods: some of the experiment's methods; all if None.
        seeds: seeds of stream and adapter.
        limit: maximum number of images per domain.
        tuning: folder with files of ``driftlaw tune``, for a second row of LAW.
        model: model that will replace those of the benchmarks. Settings tuned with another model are not used.
        sha256_of: returns the sha256 of weights, or an empty string if they are missing.
        metrics: metrics besides error and cost.
    """
    experiment = find_experiment(name)
    if limit is not None and limit < 1:
        raise UsageError(f"--limit is {limit}. Expected a number of images per domain, 1 or more.")
    datasets = experiment.datasets if datasets is None else datasets
    all_methods = list(dict.fromkeys(method for row in experiment.rows for method in row.methods or experiment.methods))
    methods = all_methods if methods is None else methods
    problems = [
        str(unknown_name(kind, name, valid))
        for kind, names, valid in (("dataset", datasets, experiment.possible), ("method", methods, all_methods))
        for name in names
        if name not in valid
    ]
    if problems:
        raise combined_error(f"{experiment.name} ({experiment.title}) has no such dataset or method:", problems)
    specs = []
    for dataset in datasets:
        preset = read_preset(dataset)
        tuned = read_tuned(tuning, dataset, model, sha256_of) if LAW in methods else None
        for row in experiment.rows:
            stream = merge(preset["stream"], row.stream)
            limits = [number for number in (limit, stream.get("limit", LIMITS.get(dataset))) if number is not None]
            if limits:
                stream["limit"] = min(limits)
            variants = [(method, row.label, row.settings, False) for method in row.methods or experiment.methods]
            if tuned and experiment.with_tuned:
                variants.append((LAW, f"{row.label} tuned on held-out corruptions".strip(), tuned, True))
            for method, label, changes, is_tuned in variants:
                settings = merge(preset_settings(preset, row.settings_from or method), changes)
                parts = (stream, merge(preset["model"], row.model), None, tuple(metrics), name, label, is_tuned)
                if method in methods:
                    specs += [RunSpec(dataset, method, settings, seed, *parts) for seed in seeds]
    return unique_specs(specs)


def unique_specs(specs: Iterable[RunSpec]) -> list[RunSpec]:
    """Return the runs without duplicates. Runs with the same record are the same run, whatever their label."""
    first: dict[tuple[str, str], RunSpec] = {}
    for spec in specs:
        first.setdefault((spec.preset, spec.file_name), spec)
    return list(first.values())


def read_tuned(
    folder: Path | None,
    dataset: str,
    model: str | None = None,
    sha256_of: Callable[[str], str] = lambda weights: "",
) -> dict[str, Any] | None:
    """Return LAW's settings that ``driftlaw tune`` chose for a benchmark, or None if there is no such file.

    Args:
        folder: output folder of ``driftlaw tune``; None for no settings.
        dataset: name of the benchmark.
        model: model that replaces the benchmark's.
        sha256_of: returns the sha256 of weights, or an empty string if they are missing.

    Raises:
        DataError: the file is damaged, or it is for other weights or another method.
    """
    original = str(read_preset(dataset)["model"]["weights"])
    weights = original if model is None else resolve_weights(model)
    path = folder / f"{preset_with_weights(dataset, weights, original)}.json" if folder else None
    if path is None or not path.is_file():
        return None
    document = read_tuning(path)
    tuned_with = document["model"]
    ours, theirs = sha256_of(weights), tuned_with.get("sha256")
    same_weights = ours == theirs if ours and theirs else tuned_with["weights"] == weights
    if document["method"] != LAW or not same_weights:
        command = ["driftlaw", "tune", dataset, *(["--model", weights] if weights != original else [])]
        raise DataError(
            f"{path} contains settings of {document['method']}, tuned with the weights {tuned_with['weights']}. "
            f"Expected {LAW} with the weights {weights}. Move the file, or tune again with "
            f"`{shlex.join([*command, '--out', str(folder)])}`."
        )
    return dict(document["settings"])
