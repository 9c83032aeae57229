"""Inventory of the models, streams and training data that are available on this machine."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from driftlaw.datasets import load_dataset
from driftlaw.errors import DriftlawError
from driftlaw.experiments.run_spec import RunSpec
from driftlaw.models import load_model, weights_sha256
from driftlaw.records.jsonl import content_hash
from driftlaw.streams import make_stream


@dataclass(frozen=True)
class AssetStatus:
    """Properties of a model, stream or training set, or the reason why it cannot be used.

    Attributes:
        problem: what is missing and how to get it. Empty if the asset is available.
        classes: number of classes of a model or stream, None if unknown.
        sha256: hash of the weights of a model.
        images: number of images of a stream, over all domains.
    """

    problem: str = ""
    classes: int | None = None
    sha256: str = ""
    images: int = 0


class AssetInventory:
    """Looks up what runs need. Each asset is loaded once, on the CPU.

    Args:
        data_dir: folder with data and weights; the default folder if None.
    """

    def __init__(self, data_dir: Path | None = None) -> None:
        self.data_dir = data_dir
        self._known: dict[str, AssetStatus] = {}

    def model(self, weights: str) -> AssetStatus:
        """Return the status of a model by its weights."""

        def load() -> AssetStatus:
            model = load_model(weights, folder=self.data_dir)
            return AssetStatus(classes=getattr(model, "info", {}).get("num_classes"), sha256=weights_sha256(model))

        return self._status(f"model {weights}", load)

    def stream(self, spec: RunSpec) -> AssetStatus:
        """Return the status of the stream of a run."""

        def load() -> AssetStatus:
            stream = make_stream(spec.stream, data_dir=self.data_dir)
            return AssetStatus(classes=stream.num_classes or None, images=len(stream) * stream.settings.batch_size)

        return self._status(f"stream {content_hash(dict(spec.stream))}", load)

    def train_data(self, spec: RunSpec) -> AssetStatus:
        """Return the status of the training data of a run."""

        def load() -> AssetStatus:
            load_dataset(spec.train_dataset, data_dir=self.data_dir, split="train")
            return AssetStatus()

        return self._status(f"train {spec.train_dataset}", load)

    def _status(self, key: str, load: Callable[[], AssetStatus]) -> AssetStatus:
        if key not in self._known:
            try:
                self._known[key] = load()
            except DriftlawError as error:
                self._known[key] = AssetStatus(str(error))
        return self._known[key]

    def problems(self, spec: RunSpec) -> list[str]:
        """Return what prevents the model and the stream of a run from being used; empty if nothing does."""
        model, stream = self.model(spec.model["weights"]), self.stream(spec)
        problems = [status.problem for status in (stream, model) if status.problem]
        if not problems and None not in (model.classes, stream.classes) and model.classes != stream.classes:
            problems.append(
                f"The model {spec.model['weights']} has {model.classes} output classes, but the stream has "
                f"{stream.classes}. Use other weights, or another dataset."
            )
        return problems

    def all_problems(self, spec: RunSpec) -> list[str]:
        """Return what prevents a run, including missing training data."""
        problems = self.problems(spec)
        if not problems and spec.needs_train_data and (missing := self.train_data(spec).problem):
            return [f"The method needs training data. {missing}"]
        return problems

    def cost(self, spec: RunSpec) -> float:
        """Return the estimated cost of a run, in forward passes of one image."""
        return self.stream(spec).images * spec.step_cost
