"""The paper's tables and figures as variations of a benchmark's preset. Each grid names the table it is from."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from driftlaw.errors import DataError, UsageError, combined_error, unknown_name
from driftlaw.experiments.run_spec import RunSpec, preset_with_weights, resolve_weights
from driftlaw.records.tuning_file import read_tuning
from driftlaw.settings import merge, read_preset

LAW = "law"
CIFAR_10, CIFAR_100, IMAGENET = "cifar10-c", "cifar100-c", "imagenet-c"
DATASETS = (CIFAR_10, CIFAR_100, IMAGENET)

LIMITS = {IMAGENET: 5000}  # images per domain, as in RobustBench; the other benchmarks use all
LAMBDAS = (0.0, 0.01, 0.1, 1.0, 10.0, 100.0)  # Table 4
TAUS = (0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2)  # Table 5
MORE_TAUS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, *TAUS)  # Table 10
GAMMAS = (0.0, 0.3, 0.6, 0.9)  # Table 9, next to LAW without decay

TABLE_1 = ("source", "norm", "tent", "adacontrast", "cotta", "gtta", "rmt", "law")
TABLE_3 = ("tent", "autorgn", "law")
TABLE_6 = ("source", "norm", "tent", "cotta", "adacontrast", "law")  # also Tables 7 and 8

MODELS = {
    CIFAR_10: ("resnext_29_4x32-cifar10", "wrn_28_10-cifar10", "wrn_40_2-cifar10", "resnet50_cifar-cifar10"),  # Table 6
    CIFAR_100: ("resnext_29_4x32-cifar100", "wrn_40_2-cifar100", "resnet50_cifar-cifar100"),  # Table 7
    IMAGENET: ("resnet50-imagenet", "torchvision:resnext50_32x4d", "torchvision:wide_resnet50_2"),  # Table 8
}

SHOWN = ("gaussian_noise", "defocus_blur")  # Figures 3, 4 and 5
STAGES = 3  # of WRN-28-10 and ResNeXt-29, the models of Figure 1a; the stem counts as 0
NO_UPDATE = 1e-12  # a learning rate that changes nothing: Figure 4 shows the weights of the source model

STRESS = ("source", "norm", "tent", "cotta", "law")  # methods without training data
ROUNDS = 10
BATCH_SIZES = (1, 4, 16, 64, 200)
BATCH_SIZE_LIMIT = 1000  # images per domain, because batches of one need one step per image


@dataclass(frozen=True)
class Variation:
    """What one run of an experiment changes in the preset.

    Attributes:
        method: name of the method.
        label: distinguishes the run from others of the same method.
        settings: merged over the preset's settings of the method.
        stream: merged over ``[stream]``.
        model: merged over ``[model]``.
        settings_from: method whose settings are used if the preset has none for this one.
        tuned: True if the settings were tuned for the benchmark's model.
    """

    method: str
    label: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    stream: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    settings_from: str = ""
    tuned: bool = False


TunedSettings = Mapping[str, Any] | None  # of LAW, None if it was not tuned
Variations = Callable[[str, TunedSettings], list[Variation]]


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper.

    Attributes:
        name: such as ``table1``.
        title: what it shows.
        variations: returns the runs for the name of a benchmark and LAW's tuned settings.
        datasets: benchmarks in the paper.
        possible: benchmarks it can be run on.
        seeds: seeds the paper averages over; one for figures of layer weights.
    """

    name: str
    title: str
    variations: Variations
    datasets: tuple[str, ...] = DATASETS
    possible: tuple[str, ...] = DATASETS
    seeds: str = "1-5"

    def methods(self, dataset: str) -> list[str]:
        """Return the methods that are run on a benchmark."""
        return list(dict.fromkeys(variation.method for variation in self.variations(dataset, None)))


def _compare(methods: Sequence[str], label: str = "", **stream: Any) -> Variations:
    """Compare methods on a stream. If LAW was tuned, its tuned settings are another row."""

    def variations(dataset: str, tuned: TunedSettings) -> list[Variation]:
        rows = [Variation(method, label, stream=stream) for method in methods]
        if tuned and LAW in methods:
            rows.append(Variation(LAW, f"{label} tuned on held-out corruptions".strip(), tuned, stream, tuned=True))
        return rows

    return variations


def _fixed(*variations: Variation) -> Variations:
    return lambda dataset, tuned: list(variations)


def _vary(setting: str, values: Iterable[float], symbol: str) -> list[Variation]:
    return [Variation(LAW, f"{symbol} {value:g}", {setting: value}) for value in values]


def _other_models(dataset: str, tuned: TunedSettings) -> list[Variation]:
    return [Variation(method, weights, model={"weights": weights}) for weights in MODELS[dataset] for method in TABLE_6]


def _surgical() -> list[Variation]:
    """Tune the first stages up to one, then the last stages from one on."""
    parts = [("up_to", stage) for stage in range(1, STAGES + 1)] + [("from", stage) for stage in range(STAGES, 1, -1)]
    return [
        Variation("surgical", f"{tuned} {part} {stage}", {"part": part, "stage": stage, "tuned": tuned}, {}, {}, "tent")
        for tuned in ("norm", "all")
        for part, stage in parts
    ]


def _layer_weights(corruptions: Iterable[str], **settings: Any) -> Variations:
    """Run LAW on one corruption each."""
    return _fixed(*(Variation(LAW, name, settings, _single(name)) for name in corruptions))


def _single(corruption: str) -> dict[str, Any]:
    return {"schedule": "single", "corruptions": [corruption]}


def _stress(dataset: str, tuned: TunedSettings) -> list[Variation]:
    streams: dict[str, dict[str, Any]] = {
        f"{ROUNDS} rounds": {"schedule": "recurring", "rounds": ROUNDS},
        "mixed": {"schedule": "mixed"},
        "correlated labels": {"order": "dirichlet"},
        "clean": _single("clean"),
    }
    streams |= {f"batches of {size}": {"batch_size": size, "limit": BATCH_SIZE_LIMIT} for size in BATCH_SIZES}
    return [row for label, stream in streams.items() for row in _compare(STRESS, label, **stream)(dataset, tuned)]


# The text next to Figure 3 says τ = 1 for all three benchmarks.
_SCALED = _layer_weights(SHOWN, tau=1.0)
_UNSCALED = _layer_weights(("clean", *SHOWN), learning_rate=NO_UPDATE, more_facts=True)
_FIG_1A = _fixed(Variation("tent"), *_surgical(), Variation(LAW))
_BOTH_CIFAR = (CIFAR_10, CIFAR_100)

EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment("table1", "continual adaptation, severity 5", _compare(TABLE_1)),
        Experiment("table2", "gradual adaptation, all severities", _compare(TABLE_1, schedule="gradual")),
        Experiment("table3", "AutoRGN and LAW", _compare(TABLE_3)),
        Experiment("table4", "weight λ of the consistency loss", _fixed(*_vary("consistency_weight", LAMBDAS, "λ"))),
        Experiment("table5", "exponent τ of the layer weights", _fixed(*_vary("tau", TAUS, "τ"))),
        Experiment("table6", "other models, CIFAR-10-C", _other_models, (CIFAR_10,), (CIFAR_10,)),
        Experiment("table7", "other models, CIFAR-100-C", _other_models, (CIFAR_100,), (CIFAR_100,)),
        Experiment("table8", "other models, ImageNet-C", _other_models, (IMAGENET,), (IMAGENET,)),
        Experiment(
            "table9", "decay γ of the Fisher information", _fixed(*_vary("fisher_decay", GAMMAS, "γ"), Variation(LAW))
        ),
        Experiment("table10", "exponent τ of the layer weights, from 0", _fixed(*_vary("tau", MORE_TAUS, "τ"))),
        Experiment("fig1a", "error by tuned part of the model", _FIG_1A, _BOTH_CIFAR, _BOTH_CIFAR),
        Experiment("fig1b", "error and FLOPs", _compare(TABLE_1), (CIFAR_100,)),
        Experiment("fig3", "layer weights of LAW under noise and blur", _SCALED, seeds="1"),
        Experiment("fig4", "unscaled layer weights, clean and corrupted images", _UNSCALED, (CIFAR_10,), seeds="1"),
        Experiment("fig5", "Fisher information per layer", _UNSCALED, (CIFAR_10,), seeds="1"),
        Experiment("stress", "long, mixed and clean streams, small batches", _stress, (CIFAR_10,), seeds="1-3"),
    )
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
    chosen = experiment.datasets if datasets is None else datasets
    valid = list(dict.fromkeys(method for dataset in experiment.possible for method in experiment.methods(dataset)))
    problems = [
        *(
            str(unknown_name("dataset", name, experiment.possible))
            for name in chosen
            if name not in experiment.possible
        ),
        *(str(unknown_name("method", name, valid)) for name in methods or () if name not in valid),
    ]
    if problems:
        raise combined_error(f"{experiment.name} ({experiment.title}) has no such dataset or method:", problems)
    specs = []
    for dataset in chosen:
        tuned = read_tuned(tuning if methods is None or LAW in methods else None, dataset, model, sha256_of)
        for variation in experiment.variations(dataset, tuned):
            if methods is None or variation.method in methods:
                first = replace(_spec(dataset, variation, limit), experiment=name, metrics=tuple(metrics))
                specs += [replace(first, seed=seed) for seed in seeds]
    return unique_specs(specs)


def _spec(dataset: str, variation: Variation, limit: int | None) -> RunSpec:
    preset = read_preset(dataset)
    settings = merge(preset["methods"].get(variation.settings_from or variation.method, {}), variation.settings)
    stream = merge(preset["stream"], variation.stream)
    limits = [number for number in (limit, stream.get("limit", LIMITS.get(dataset))) if number is not None]
    if limits:
        stream["limit"] = min(limits)
    table = merge(preset["model"], variation.model)
    label, tuned = variation.label, variation.tuned
    return RunSpec(dataset, variation.method, settings, 0, stream, table, label=label, tuned=tuned)


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
) -> TunedSettings:
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
    settings: dict[str, Any] = document["settings"]
    return settings
