"""The paper's experiments by name, each as changes to a benchmark's preset; grids name the table they are from."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from driftlaw.errors import DataError, UsageError, collected, unknown
from driftlaw.experiments.run_spec import Cell, name_with_weights, weights_of
from driftlaw.settings import merge, read_preset

LAW = "law"
CIFAR_10, CIFAR_100, IMAGENET = "cifar10-c", "cifar100-c", "imagenet-c"
DATASETS = (CIFAR_10, CIFAR_100, IMAGENET)

LIMITS = {IMAGENET: 5000}  # images a domain where a benchmark does not take all of them; RobustBench's custom
LAMBDAS = (0.0, 0.01, 0.1, 1.0, 10.0, 100.0)  # Table 4
TAUS = (0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2)  # Table 5
MORE_TAUS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, *TAUS)  # Table 10
GAMMAS = (0.0, 0.3, 0.6, 0.9)  # Table 9; beside them «ours», which forgets nothing

TABLE_1 = ("source", "norm", "tent", "adacontrast", "cotta", "gtta", "rmt", "law")
TABLE_3 = ("tent", "autorgn", "law")
TABLE_6 = ("source", "norm", "tent", "cotta", "adacontrast", "law")  # Tables 7 and 8 compare the same

NETWORKS = {
    CIFAR_10: ("resnext_29_4x32-cifar10", "wrn_28_10-cifar10", "wrn_40_2-cifar10", "resnet50_cifar-cifar10"),  # Table 6
    CIFAR_100: ("resnext_29_4x32-cifar100", "wrn_40_2-cifar100", "resnet50_cifar-cifar100"),  # Table 7
    IMAGENET: ("resnet50-imagenet", "torchvision:resnext50_32x4d", "torchvision:wide_resnet50_2"),  # Table 8
}

SHOWN = ("gaussian_noise", "defocus_blur")  # Figures 3, 4 and 5
STAGES = 3  # of WRN-28-10 and ResNeXt-29, the networks of Figure 1a; the stem counts as 0
STANDING_STILL = 1e-12  # a rate that moves nothing: Figure 4 weighs the layers of the network as it was trained

STRESS = ("source", "norm", "tent", "cotta", "law")  # what needs no source data, with the best known of the dear ones
ROUNDS = 10
BATCH_SIZES = (1, 4, 16, 64, 200)
BATCH_SIZE_LIMIT = 1000  # images a domain: with batches of one a step is taken for every image


@dataclass(frozen=True)
class Change:
    """What a cell changes in its preset.

    Attributes:
        method: whose settings of the preset are taken.
        label: what tells the cell from others of its method.
        settings: laid over the preset's settings of the method.
        stream: laid over ``[stream]``.
        model: laid over ``[model]``.
        like: the method whose settings of the preset are taken, where the preset has none of this one.
        tuned: whether the settings were chosen for the benchmark's network.
    """

    method: str
    label: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    stream: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    like: str = ""
    tuned: bool = False


Tuned = Mapping[str, Any] | None
"""LAW's settings as chosen on held-out corruptions, where somebody has chosen any."""


@dataclass(frozen=True)
class Experiment:
    """A table or figure: what is varied, on which benchmarks, with which seeds.

    Attributes:
        name: such as ``table1``.
        title: what it shows, in our own words.
        changes: a benchmark's name and LAW's tuned settings to the changes of its cells.
        datasets: the benchmarks that the paper shows.
        possible: those it can be asked for.
        seeds: as many as the paper averages over; one for figures of weights.
    """

    name: str
    title: str
    changes: Callable[[str, Tuned], list[Change]]
    datasets: tuple[str, ...] = DATASETS
    possible: tuple[str, ...] = DATASETS
    seeds: str = "1-5"

    def methods(self, dataset: str) -> list[str]:
        """Return the methods that are run on a benchmark."""
        return list(dict.fromkeys(change.method for change in self.changes(dataset, None)))


# --- tables ----------------------------------------------------------------------------------------------------------


def _compared(
    methods: Sequence[str], tuned: Tuned, *, label: str = "", stream: Mapping[str, Any] | None = None
) -> list[Change]:
    """Return a change a method, and LAW once more where it was tuned."""
    rows = [Change(method, label, stream=stream or {}) for method in methods]
    if tuned and "law" in methods:
        told = f"{label} tuned on held-out corruptions".strip()
        rows.append(Change("law", told, tuned, stream or {}, tuned=True))
    return rows


def _continual(dataset: str, tuned: Tuned) -> list[Change]:
    return _compared(TABLE_1, tuned)


def _gradual(dataset: str, tuned: Tuned) -> list[Change]:
    return _compared(TABLE_1, tuned, stream={"schedule": "gradual"})


def _against_autorgn(dataset: str, tuned: Tuned) -> list[Change]:
    return _compared(TABLE_3, tuned)


def _varying(name: str, values: Iterable[float], letter: str) -> list[Change]:
    return [Change("law", f"{letter} {value:g}", {name: value}) for value in values]


def _lambdas(dataset: str, tuned: Tuned) -> list[Change]:
    return _varying("consistency_weight", LAMBDAS, "λ")


def _taus(dataset: str, tuned: Tuned) -> list[Change]:
    return _varying("tau", TAUS, "τ")


def _more_taus(dataset: str, tuned: Tuned) -> list[Change]:
    return _varying("tau", MORE_TAUS, "τ")


def _gammas(dataset: str, tuned: Tuned) -> list[Change]:
    return [*_varying("fisher_decay", GAMMAS, "γ"), Change("law")]


def _networks(dataset: str, tuned: Tuned) -> list[Change]:
    return [Change(method, weights, model={"weights": weights}) for weights in NETWORKS[dataset] for method in TABLE_6]


# --- figures ---------------------------------------------------------------------------------------------------------


def _surgery(dataset: str, tuned: Tuned) -> list[Change]:
    """Tune more and more stages, from the input on and from the output back; TENT and LAW beside them."""
    parts = [("up_to", stage) for stage in range(1, STAGES + 1)] + [("from", stage) for stage in range(STAGES, 1, -1)]
    return [
        Change("tent"),
        *(
            Change("surgical", f"{tuned_part} {part} {stage}", _part(part, stage, tuned_part), like="tent")
            for tuned_part in ("norm", "all")
            for part, stage in parts
        ),
        Change("law"),
    ]


def _part(part: str, stage: int, tuned: str) -> dict[str, Any]:
    return {"part": part, "stage": stage, "tuned": tuned}


def _single(corruption: str) -> dict[str, Any]:
    return {"schedule": "single", "corruptions": [corruption]}


def _scaled_weights(dataset: str, tuned: Tuned) -> list[Change]:
    """LAW on one corruption each; the text beside Figure 3 says τ = 1 for all three benchmarks."""
    return [Change("law", name, {"tau": 1.0}, _single(name)) for name in SHOWN]


def _unscaled_weights(dataset: str, tuned: Tuned) -> list[Change]:
    """LAW's scores of the network as it was trained, on clean images and on two corruptions."""
    settings = {"learning_rate": STANDING_STILL, "more_facts": True}
    return [Change("law", name, settings, _single(name)) for name in ("clean", *SHOWN)]


# --- long and hard streams -------------------------------------------------------------------------------------------


def _stress(dataset: str, tuned: Tuned) -> list[Change]:
    streams: dict[str, dict[str, Any]] = {
        f"{ROUNDS} rounds": {"schedule": "recurring", "rounds": ROUNDS},
        "mixed": {"schedule": "mixed"},
        "correlated labels": {"order": "dirichlet"},
        "clean": _single("clean"),
    }
    for size in BATCH_SIZES:
        streams[f"batches of {size}"] = {"batch_size": size, "limit": BATCH_SIZE_LIMIT}
    return [
        change for label, stream in streams.items() for change in _compared(STRESS, tuned, label=label, stream=stream)
    ]


EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment("table1", "continual adaptation, severity 5", _continual),
        Experiment("table2", "gradual adaptation, over all severities and at the highest", _gradual),
        Experiment("table3", "AutoRGN beside LAW", _against_autorgn),
        Experiment("table4", "LAW with other weights λ of the consistency loss", _lambdas),
        Experiment("table5", "LAW with other exponents τ of the scaler", _taus),
        Experiment("table6", "other networks, CIFAR-10-C", _networks, (CIFAR_10,), (CIFAR_10,)),
        Experiment("table7", "other networks, CIFAR-100-C", _networks, (CIFAR_100,), (CIFAR_100,)),
        Experiment("table8", "other networks, ImageNet-C", _networks, (IMAGENET,), (IMAGENET,)),
        Experiment("table9", "LAW that forgets Fisher information at other rates γ", _gammas),
        Experiment("table10", "LAW with exponents τ from 0 on", _more_taus),
        Experiment("fig1a", "error against the tuned part", _surgery, (CIFAR_10, CIFAR_100), (CIFAR_10, CIFAR_100)),
        Experiment("fig1b", "error against FLOPs", _continual, (CIFAR_100,)),
        Experiment("fig3", "LAW's layer weights under noise and under blur", _scaled_weights, seeds="1"),
        Experiment("fig4", "unscaled weights of source and target", _unscaled_weights, (CIFAR_10,), seeds="1"),
        Experiment("fig5", "Fisher diagonal a layer", _unscaled_weights, (CIFAR_10,), seeds="1"),
        Experiment("stress", "long and hard streams, and clean images", _stress, (CIFAR_10,), seeds="1-3"),
    )
}


# --- from an experiment to its cells ---------------------------------------------------------------------------------


def find_experiment(name: str) -> Experiment:
    """Return the experiment of that name, or raise with the nearest one."""
    if name not in EXPERIMENTS:
        raise unknown("experiment", name, list(EXPERIMENTS))
    return EXPERIMENTS[name]


def plan_experiment(
    name: str,
    *,
    datasets: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    seeds: Sequence[int],
    limit: int | None = None,
    tuning: Path | None = None,
    network: str | None = None,
    sha256_of: Callable[[str], str] = lambda weights: "",
    measures: Sequence[str] = (),
) -> list[Cell]:
    """Return the cells of an experiment, a benchmark after the other, the seeds of a row together.

    Args:
        name: of ``EXPERIMENTS``.
        datasets: benchmarks; those of the paper where None.
        methods: some of the experiment's methods; all of them where None.
        seeds: of stream and adapter.
        limit: images a domain.
        tuning: a folder with a ``DATASET.json`` that ``driftlaw tune`` wrote, for a second row of LAW.
        network: the one that will be taken in place of every benchmark's own; what was tuned with another is not read.
        sha256_of: weights to their sha256, empty where they are not here.
        measures: what is measured beside error and cost.
    """
    experiment = find_experiment(name)
    if limit is not None and limit < 1:
        raise UsageError(f"--limit {limit}: expected a number of images a domain, 1 or more")
    chosen = list(datasets) if datasets is not None else list(experiment.datasets)
    _refuse_unknown(experiment, chosen, methods)
    cells = []
    for dataset in chosen:
        wanted = tuning if methods is None or LAW in methods else None
        changes = experiment.changes(dataset, read_tuned(wanted, dataset, network, sha256_of))
        changes = [change for change in changes if methods is None or change.method in methods]
        cells += [_cell(experiment, dataset, change, seed, limit) for change in changes for seed in seeds]
    return without_doubles(replace(cell, measures=tuple(measures)) for cell in cells)


def without_doubles(cells: Iterable[Cell]) -> list[Cell]:
    """Return the cells, each once: those of one record are one cell, whatever they are called."""
    first: dict[tuple[str, str], Cell] = {}
    for cell in cells:
        first.setdefault((cell.preset, cell.file_name), cell)
    return list(first.values())


def _refuse_unknown(experiment: Experiment, datasets: Sequence[str], methods: Sequence[str] | None) -> None:
    valid = list(dict.fromkeys(method for dataset in experiment.possible for method in experiment.methods(dataset)))
    problems = [
        *(str(unknown("dataset", name, experiment.possible)) for name in datasets if name not in experiment.possible),
        *(str(unknown("method", name, valid)) for name in methods or () if name not in valid),
    ]
    if problems:
        raise collected(f"{experiment.name} ({experiment.title}) does not have that:", problems)


def _cell(experiment: Experiment, dataset: str, change: Change, seed: int, limit: int | None) -> Cell:
    preset = read_preset(dataset)
    stream = merge(preset["stream"], change.stream)
    limits = [number for number in (limit, stream.get("limit", LIMITS.get(dataset))) if number is not None]
    if limits:
        stream["limit"] = min(limits)
    return Cell(
        preset=dataset,
        method=change.method,
        settings=merge(preset["methods"].get(change.like or change.method, {}), change.settings),
        seed=seed,
        stream=stream,
        model=merge(preset["model"], change.model),
        experiment=experiment.name,
        label=change.label,
        tuned=change.tuned,
    )


def read_tuned(
    folder: Path | None,
    dataset: str,
    network: str | None = None,
    sha256_of: Callable[[str], str] = lambda weights: "",
) -> Tuned:
    """Return LAW's settings that ``driftlaw tune`` chose for a benchmark, None where it has not, or not yet.

    Args:
        folder: where ``driftlaw tune`` wrote; None for no settings.
        dataset: the benchmark.
        network: the network in place of the benchmark's own.
        sha256_of: weights to their sha256, empty where they are not here.

    Raises:
        DataError: the file is damaged, or what it says was chosen for other weights or another method.
    """
    own = str(read_preset(dataset)["model"]["weights"])
    weights = own if network is None else weights_of(network)
    path = folder / f"{name_with_weights(dataset, weights, own)}.json" if folder else None
    if path is None or not path.is_file():
        return None
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        settings, method = dict(document["settings"]), document.get("method", LAW)
        tuned_with = {"weights": weights, **document.get("model", {})}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path} has no «settings» as `driftlaw tune` writes them ({error}): make it again") from error
    if method != LAW or not _same_weights(tuned_with, weights, sha256_of):
        command = ["driftlaw", "tune", dataset, *(["--network", weights] if weights != own else [])]
        raise DataError(
            f"{path} holds what was chosen for {method} with the network {tuned_with['weights']}, and this is a table "
            f"of {LAW} with {weights}, other weights: move the file away, or make it again with "
            f"`{shlex.join([*command, '--out', str(folder)])}`"
        )
    return settings if document.get("finished", True) else None


def _same_weights(tuned_with: Mapping[str, Any], weights: str, sha256_of: Callable[[str], str]) -> bool:
    """Tell whether these are the weights of the choice: by their sha256 where both are known, else by name."""
    known = tuned_with.get("sha256")
    here = sha256_of(weights) if known else ""
    return here == known if here and known else tuned_with["weights"] == weights
