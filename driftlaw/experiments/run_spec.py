"""Run specifications: method, settings, seed, stream and model of one run, as plain picklable data."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from driftlaw.base import preset_settings
from driftlaw.base.find_method import find_method, is_method_file
from driftlaw.datasets import ARCHIVES, dataset_info
from driftlaw.errors import UsageError, unknown_name
from driftlaw.evaluation.metrics import METRICS
from driftlaw.methods import list_methods, registered_methods
from driftlaw.records import RunRecord, read_record
from driftlaw.records.jsonl import content_hash
from driftlaw.settings import ALIASES, check_seed, merge, parse_assignments, read_preset
from driftlaw.streams import StreamSettings
from driftlaw.streams.make import own_data_settings

Table = Mapping[str, Any]

EMBEDDED = "embedded"
MODEL_KEYS = ("weights", "checkpoint", "normalize")
MAX_SEEDS = 1000  # in one range
WEIGHTS_SUFFIXES = (".safetensors", ".pt", ".pth", ".ckpt")


@dataclass(frozen=True)
class RunSpec:
    """Everything that determines one run, in the terms of a preset.

    Attributes:
        preset: name of the preset, or of its fallback. The name of the record starts with it.
        method: name of the method.
        settings: settings of the method that differ from their defaults.
        seed: seed of the stream and of the adapter.
        stream: table ``[stream]`` of the preset, without ``train_data``.
        model: table ``[model]`` of the preset: ``weights``, and ``checkpoint`` and ``normalize`` if given.
        train_data: dataset whose train split is passed to methods that need training data. If None, the dataset of
            the stream is used.
        metrics: metrics besides error and cost.
        experiment: name of a table or figure, which is also the name of its folder. Empty for a single run.
        label: distinguishes the run from others of the same method, in progress lines and tables.
        tuned: True if the settings were tuned for this model and therefore must not be used with another one.
    """

    preset: str
    method: str
    settings: Table
    seed: int
    stream: Table
    model: Table
    train_data: str | None = None
    metrics: tuple[str, ...] = ()
    experiment: str = ""
    label: str = field(default="", compare=False)
    tuned: bool = field(default=False, compare=False)

    @property
    def title(self) -> str:
        """Short description for progress lines, such as ``cifar10-c law seed 1``."""
        return " ".join(part for part in (self.preset, self.method, self.label, f"seed {self.seed}") if part)

    @property
    def needs_train_data(self) -> bool:
        """True if the method needs training data."""
        return registered_methods()[self.method].needs_train_data

    @property
    def step_cost(self) -> float:
        """Cost of a step of the method, in forward passes."""
        method = registered_methods()[self.method]
        return method.forward_cost + method.backward_cost

    @property
    def train_dataset(self) -> str:
        """Dataset whose train split is the training data. For a corrupted archive this is the clean dataset."""
        name = self.train_data or self.stream.get("dataset", StreamSettings().dataset)
        return ARCHIVES[name].dataset if name in ARCHIVES else str(name)

    @property
    def file_name(self) -> str:
        """File name of the record, different for every combination of stream, model and settings."""
        # Records of versions without statistics='auto' have the same names.
        settings = {name: value for name, value in self.settings.items() if (name, value) != ("statistics", "batch")}
        parts: list[Any] = [self.stream, self.model, settings]
        if self.train_data and self.needs_train_data:
            parts.append(self.train_data)
        if self.metrics:
            parts.append(sorted(self.metrics))
        return f"{self.preset}-{self.method}-seed{self.seed}-{content_hash(parts)[:8]}.jsonl"

    def record_path(self, out: Path) -> Path:
        """Return the path a run writes its record to: in ``out``, or in ``out/EXPERIMENT/PRESET``."""
        folder = out / self.experiment / self.preset if self.experiment else out
        return folder / self.file_name

    def record_candidates(self, out: Path) -> list[Path]:
        """Return the paths at which the record may be found: uncompressed and compressed."""
        path = self.record_path(out)
        return [path, path.with_name(path.name + ".gz")]

    def finished_record(self, out: Path, *, other_experiments: bool = False) -> RunRecord | None:
        """Return the record if the run is finished, else None. It may be looked for in other experiments, too."""
        paths = self.record_candidates(out)
        if other_experiments:
            paths += [path for own in paths for path in sorted(out.glob(f"*/{self.preset}/{own.name}"))]
        existing = [path for path in paths if path.exists() and path.stat().st_size]
        return next((record for record in map(read_record, existing) if record.finished), None)

    def with_weights(self, weights: str, *, embedded_images: bool = False) -> Self:
        """Return the run with other weights, under a preset name that includes them.

        Args:
            weights: name or path that ``load_model`` accepts.
            embedded_images: also replace the images by the embedded ones. Training data does not change.
        """
        original, embedded = self.model["weights"], read_preset(EMBEDDED)
        if weights == original:
            return self
        stream, train_data, model = self.stream, self.train_data, {**self.model, "weights": weights}
        if embedded_images:
            stream, train_data = {**stream, "dataset": embedded["stream"]["dataset"]}, self.train_dataset
        is_embedded = model == embedded["model"] and stream["dataset"] == embedded["stream"]["dataset"]
        preset = EMBEDDED if is_embedded else preset_with_weights(self.preset, weights, original)
        label = "" if self.label == original else self.label  # Tables 6 to 8 use the weights as label
        return replace(self, preset=preset, stream=stream, model=model, train_data=train_data, label=label)


def resolve_weights(model: str) -> str:
    """Return the weights for ``--network``: ``embedded`` is short for the weights of the preset of that name."""
    return str(read_preset(EMBEDDED)["model"]["weights"]) if model == EMBEDDED else model


def preset_with_weights(preset: str, weights: str, original: str | None) -> str:
    """Return the name of a preset used with some weights. With its original weights the name does not change.

    >>> preset_with_weights("cifar10-c", "trained here/wrn_28_2.safetensors", "wrn_28_10-cifar10")
    'cifar10-c-wrn_28_2'
    """
    if weights == original:
        return preset
    stem = Path(weights).stem if weights.endswith(WEIGHTS_SUFFIXES) else weights
    return f"{preset}-{re.sub(r'[^A-Za-z0-9_.]+', '-', stem)}"


def plan_run(
    preset: str | None,
    *,
    data: str | os.PathLike[str] | None = None,
    assignments: Sequence[str] = (),
    limit: int | None = None,
    methods: str | None = None,
    seeds: str = "1",
    metrics: Sequence[str] = (),
    model: str | None = None,
    checkpoint: str | None = None,
    normalize: str | None = None,
) -> list[RunSpec]:
    """Return the runs of ``driftlaw run``: every method with every seed.

    Args:
        preset: name, TOML file, or several combined: ``A+B``. If None, all settings have their defaults.
        data: folder of images, or shards, that replace the preset's stream. Records are named after it.
        assignments: values of ``--set``: ``law.tau=0.6``, ``stream.severity=3``, ``step.precision=bf16``.
        limit: maximum number of images per domain.
        methods: comma-separated names or Python files (``mine.py``, ``mine.py:Mine``). If None: the preset's
            ``default_methods``, or all of its methods if it has none.
        seeds: such as ``1-5``.
        metrics: metrics besides error and cost.
        model: network or weights to use instead of the preset's, as for ``load_model``.
        checkpoint: file with a state dict for this network.
        normalize: input normalisation of this network.

    Example:
        >>> [(spec.method, spec.seed) for spec in plan_run("embedded", methods="law", seeds="1-2")]
        [('law', 1), ('law', 2)]
    """
    tables, changes = {} if preset is None else read_preset(preset), parse_assignments(assignments)
    for name in [name for name in metrics if name not in METRICS]:
        raise unknown_name("metric", name, METRICS)
    default = tables.get("default_methods", list(tables.get("methods", {})))
    chosen = [_method_name(name.strip()) for name in methods.split(",")] if methods else default
    valid = list_methods()
    chosen = chosen or valid
    for name, value in changes.items():
        if not isinstance(value, dict):
            kinds = {"stream": StreamSettings} | {method: registered_methods()[method].Config for method in valid}
            known = [owner for owner in kinds if ALIASES.get(name, name) in kinds[owner].model_fields]
            owners = [owner for owner in known if owner in ("stream", *chosen)] or known
            written = " or ".join(f"{owner}.{name}={value}" for owner in owners[:4]) or f"{name}.SETTING={value}"
            raise UsageError(f"--set {name}={value} does not say which setting of which part. Write {written}.")
    preset_stream = tables.get("stream", {}) if data is None else own_data_settings(os.fspath(data))
    stream = merge(preset_stream, changes.pop("stream", {}))
    old_spelling = stream.pop("source", None)
    train_data = stream.pop("train_data", old_spelling)
    if limit is not None:
        stream["limit"] = limit
    model_table = merge(tables.get("model", {}), changes.pop("model", {}))
    if model is not None:
        model_table["weights"] = resolve_weights(model)
    elif checkpoint is not None:
        raise UsageError(f"--checkpoint {checkpoint} needs a network. Pass --network, such as timm:resnet18.")
    model_table |= {key: value for key, value in (("checkpoint", checkpoint), ("normalize", normalize)) if value}
    for key in set(model_table) - set(MODEL_KEYS):
        raise unknown_name("setting of the model", key, MODEL_KEYS)
    if not preset_stream and not model_table:
        raise UsageError(
            f"The preset {preset} only changes methods. Combine it with another preset, such as cifar10-c+{preset}."
        )
    if "weights" not in model_table:
        raise UsageError(
            f"The preset {preset} does not name weights. Add them under [model], or pass --set model.weights=PATH."
        )
    tables["step"] = merge(tables.get("step", {}), changes.pop("step", {}))
    for name in [*chosen, *changes]:
        if name not in valid:
            raise unknown_name("method", name, valid if name in chosen else [*valid, "step", "stream", "model"])
    for name in [name for name in changes if name not in chosen]:
        raise UsageError(
            f"--set {name}.{next(iter(changes[name]))} has no effect, because {name} is not run. Runs: "
            f"{', '.join(chosen)}. Add {name} to --methods, or omit the setting."
        )
    name = Path(preset or "defaults").stem
    if data is not None:  # such as 'photos' or '000..049'
        name = re.sub(r"[{},|]+", "-", Path(data).resolve().name.removesuffix(".tar")).strip("-")
    specs = []
    for method in chosen:
        settings = merge(preset_settings(tables, method), changes.get(method, {}))
        parts = (stream, model_table, train_data, tuple(metrics))
        specs += [RunSpec(name, method, settings, seed, *parts) for seed in parse_seeds(seeds)]
    _check_train_split_exists(specs)
    return specs


def _method_name(name: str) -> str:
    """Return the name of a method, after importing it if it is given as a Python file."""
    if not is_method_file(name):
        return name
    before = dict(registered_methods())
    kind = find_method(name)
    if kind.name in before and before[kind.name].__module__ != kind.__module__:
        registered_methods().update(before)
        raise UsageError(f"{name} defines a method called '{kind.name}', which already exists. Choose another name.")
    registered_methods()[kind.name] = kind
    return kind.name


def _check_train_split_exists(specs: Sequence[RunSpec]) -> None:
    needed = [spec for spec in specs if spec.needs_train_data]
    for name in dict.fromkeys(spec.train_dataset for spec in needed):
        if name.startswith("archive:") or "train" not in dataset_info(name).splits:
            methods = dict.fromkeys(spec.method for spec in needed if spec.train_dataset == name)
            raise UsageError(
                f"Training data is needed by {', '.join(methods)}, but {name} has no train split. Name the dataset "
                "the model was trained on, such as --set stream.train_data=cifar10, or leave these methods out."
            )


def parse_seeds(text: str) -> list[int]:
    """Return the seeds of ``1``, ``1,2,3`` or ``1-5``.

    >>> parse_seeds("1-3,7")
    [1, 2, 3, 7]
    """
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,19})(?:-([0-9]{1,19}))?", part.strip())
        if match is None:
            raise UsageError(f"--seeds {text} is not a list of seeds. Expected 1, 1,2,3 or 1-5.")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise UsageError(f"--seeds {text}: the range {part.strip()} is empty. Write {last}-{first}.")
        if last - first >= MAX_SEEDS:
            raise UsageError(f"--seeds {text}: the range {part.strip()} has more than {MAX_SEEDS} seeds.")
        seeds += range(first, check_seed(last) + 1)
    return seeds
