"""What lies on this machine of what cells need: weights, images, training data; and what can stand in for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from driftlaw.datasets import dataset_info, load_dataset
from driftlaw.errors import DriftlawError
from driftlaw.experiments.run_spec import EMBEDDED, Cell, weights_of, with_weights
from driftlaw.methods import registered_methods
from driftlaw.models import load_model, weights_sha256
from driftlaw.records.jsonl import content_hash
from driftlaw.settings import read_preset
from driftlaw.streams import make_stream

STOOD_IN_FOR = "cifar10"  # the embedded images are CIFAR-10's, and so is what the embedded network answers


@dataclass(frozen=True)
class Found:
    """A network or a stream that is there, or the problem with it.

    Attributes:
        problem: what is missing and how to get it; empty where all is well.
        classes: how many the network answers, or the stream has; None where nobody knows.
        sha256: of the network's weights.
        steps: of the stream.
        images: of the stream, those of all its domains.
    """

    problem: str = ""
    classes: int | None = None
    sha256: str = ""
    steps: int = 0
    images: int = 0


class Stock:
    """Looks at each thing that cells need once, on the CPU.

    Args:
        data_dir: where data and weights lie, where it is not the default folder.
    """

    def __init__(self, data_dir: Path | None = None) -> None:
        self.data_dir = data_dir
        self._seen: dict[str, Found] = {}

    def network(self, weights: str) -> Found:
        """Return what is known of some weights."""
        return self._look(f"network {weights}", lambda: self._load_network(weights))

    def stream(self, cell: Cell) -> Found:
        """Return what is known of the stream of a cell."""
        return self._look(f"stream {content_hash(dict(cell.stream))}", lambda: self._open_stream(cell))

    def training_data(self, cell: Cell) -> Found:
        """Return what is known of the training data that the method of a cell is handed."""
        name = cell.source_dataset
        return self._look(f"train {name}", lambda: self._load_training_data(name))

    def _look(self, key: str, look: Callable[[], Found]) -> Found:
        if key not in self._seen:
            try:
                self._seen[key] = look()
            except DriftlawError as error:
                self._seen[key] = Found(str(error))
        return self._seen[key]

    def _load_network(self, weights: str) -> Found:
        model = load_model(weights, folder=self.data_dir)
        return Found(classes=model.info.get("num_classes"), sha256=weights_sha256(model))

    def _open_stream(self, cell: Cell) -> Found:
        stream = make_stream(cell.stream, data_dir=self.data_dir)
        images = len(stream) * stream.settings.batch_size
        return Found(classes=stream.num_classes, steps=len(stream), images=images)

    def _load_training_data(self, name: str) -> Found:
        if "train" not in dataset_info(name).splits:
            return Found(f"{name} has no training data")
        images = load_dataset(name, data_dir=self.data_dir, split="train")
        return Found(classes=images.num_classes)

    # --- of a cell ---------------------------------------------------------------------------------------------------

    def problems(self, cell: Cell) -> list[str]:
        """Return what keeps a cell's network and stream from being run; nothing where they are there."""
        network, stream = self.network(cell.model["weights"]), self.stream(cell)
        found = [found.problem for found in (stream, network) if found.problem]
        if not found and None not in (network.classes, stream.classes) and network.classes != stream.classes:
            found.append(
                f"the network {cell.model['weights']} answers {network.classes} classes, the stream has "
                f"{stream.classes}: take other weights, or other datasets"
            )
        return found

    def all_problems(self, cell: Cell) -> list[str]:
        """Return what keeps a cell from being run, the training data of its method counted in."""
        needed = self.training_data(cell).problem if cell.needs_train_data else ""
        return self.problems(cell) or ([f"the training data is needed, and {needed}"] if needed else [])

    def work(self, cell: Cell) -> float:
        """Return how much there is to do, in forward passes of one image."""
        kind = registered_methods()[cell.method]
        return self.stream(cell).images * (kind.forward_cost + kind.backward_cost)


# --- stand-ins -------------------------------------------------------------------------------------------------------


def with_embedded(cell: Cell) -> Cell:
    """Return the cell on the embedded images and the embedded network, under their name."""
    model = read_preset(EMBEDDED)["model"]
    return replace(with_weights(_with_embedded_images(cell), model["weights"]), preset=EMBEDDED, model=model)


def has_stand_in(cell: Cell) -> bool:
    """Tell whether the embedded default may stand in for what a cell needs."""
    return cell.stream["dataset"] == STOOD_IN_FOR and not cell.stream.get("archive")


def with_network(cells: Sequence[Cell], network: str, stock: Stock) -> list[Cell]:
    """Return cells of another network, under a name that tells them from the benchmark's own.

    Images that are not there are stood in for by the embedded ones, where these are of the same dataset.

    Args:
        cells: whose network is exchanged.
        network: ``embedded``, or what ``load_model`` takes.
        stock: what lies on this machine.
    """
    weights = weights_of(network)
    return [_with_network(cell, weights, stock) for cell in cells]


def _with_network(cell: Cell, weights: str, stock: Stock) -> Cell:
    if cell.model["weights"] == weights:
        return cell
    if has_stand_in(cell) and stock.stream(cell).problem:
        cell = _with_embedded_images(cell)
    other = with_weights(cell, weights)
    is_embedded = other.model == read_preset(EMBEDDED)["model"] and cell.stream["dataset"] != STOOD_IN_FOR
    return replace(other, preset=EMBEDDED) if is_embedded else other


def _with_embedded_images(cell: Cell) -> Cell:
    images = read_preset(EMBEDDED)["stream"]["dataset"]
    return replace(cell, stream=dict(cell.stream) | {"dataset": images}, source=cell.source_dataset)
