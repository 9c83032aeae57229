"""Where cells are run: a device, and what the last cell needed of it, so that the next one need not load it again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from driftlaw import evaluation
from driftlaw.base import Adapter
from driftlaw.components.cache import cache_dir
from driftlaw.components.train_data import TrainData
from driftlaw.datasets import load_dataset
from driftlaw.errors import DataError, UsageError, collected
from driftlaw.experiments.run_spec import Cell
from driftlaw.hardware import keep_freed_memory
from driftlaw.methods import make_adapter
from driftlaw.models import load_model, weights_sha256
from driftlaw.records import RecordWriter, RunRecord
from driftlaw.streams import CorruptedStream, make_stream


class Workbench:
    """Runs cells one after the other; the network, the images and the training data of the last one are kept.

    Args:
        device: where networks and images go.
        data_dir: where data and weights lie, where it is not the default folder.
    """

    def __init__(self, device: torch.device, data_dir: Path | None = None) -> None:
        self.device, self.data_dir = device, data_dir
        if device.type == "cpu":
            keep_freed_memory()  # every step asks for the same blocks again
        self._networks: dict[str, nn.Module] = {}
        self._sources: dict[str, TrainData] = {}
        self._stream: CorruptedStream | None = None

    # --- what a cell needs -------------------------------------------------------------------------------------------

    def network(self, weights: str) -> nn.Module:
        """Return a trained network on the device; one at a time is kept."""
        if weights not in self._networks:
            self._networks.clear()
            model = load_model(weights, folder=self.data_dir)
            self._networks[weights] = model.to(self.device, memory_format=torch.channels_last)
        return self._networks[weights]

    def stream(self, cell: Cell) -> CorruptedStream:
        """Return the stream of a cell; it shares the corrupted images of the last one where they are the same."""
        self._stream = make_stream(
            cell.stream, data_dir=self.data_dir, device=self.device, like=self._stream, seed=cell.seed
        )
        return self._stream

    def training_data(self, cells: Iterable[Cell], stream: CorruptedStream) -> TrainData | None:
        """Return the training data of some cells of one stream: None where none of them needs any.

        Raises:
            DataError: it is not there; the message names the methods that go without.
            UsageError: it has other classes or sizes than the stream.
        """
        cells = list(cells)
        needy = next((cell for cell in cells if cell.needs_train_data), None)
        if needy is None:
            return None
        name = needy.source_dataset
        if name not in self._sources:
            self._sources.clear()
            self._sources[name] = self._load_source(name, cells, stream)
        return self._sources[name]

    def _load_source(self, name: str, cells: Sequence[Cell], stream: CorruptedStream) -> TrainData:
        try:
            images = load_dataset(name, data_dir=self.data_dir, split="train")
        except DataError as error:
            needy = dict.fromkeys(cell.method for cell in cells if cell.needs_train_data)
            others = ",".join(dict.fromkeys(cell.method for cell in cells if not cell.needs_train_data)) or "law"
            raise DataError(f"{error}. {', '.join(needy)} need it; without them: --methods {others}") from error
        facts = {
            "classes": (images.num_classes, stream.num_classes),
            "image size": (images.image_shape, stream.dataset.image_shape),
        }
        problems = [f"{what}: {own} against the stream's {its}" for what, (own, its) in facts.items() if own != its]
        if problems:
            heading = f"the training data {name} does not go with the stream (--set stream.source=NAME):"
            raise collected(heading, problems)
        return TrainData(images, cache_dir(self.data_dir))

    def adapter(self, cell: Cell, model: nn.Module, source: TrainData | None) -> Adapter:
        """Return the cell's method around a copy of the network."""
        needed = source if cell.needs_train_data else None
        return make_adapter(cell.method, model, cell.settings, seed=cell.seed, train_data=needed)

    # --- running -----------------------------------------------------------------------------------------------------

    def check(self, cells: Sequence[Cell]) -> None:
        """Raise where network, stream and methods of some cells of one stream and network do not go together."""
        first = cells[0]
        model, stream = self.network(first.model["weights"]), make_stream(first.stream, data_dir=self.data_dir)
        source = self.training_data(cells, stream)
        for cell in {cell.method: cell for cell in cells}.values():
            self.adapter(cell, model, source)
        check_classes(model, stream)

    def run(
        self,
        cell: Cell,
        out: Path,
        *,
        again: bool = False,
        command: str = "",
        checkpoint_seconds: float = 30.0,
        started: Callable[[int], None] = lambda steps: None,
        progress: Callable[[dict[str, Any]], None] = lambda line: None,
    ) -> RunRecord:
        """Run a cell, or go on with it, and return its record; a finished one is returned as it is.

        Args:
            cell: what to run.
            out: the folder that its record goes to.
            again: replace a record that is there.
            command: what the record's header says it was started with.
            checkpoint_seconds: how much work a kill may cost.
            started: called with the number of steps.
            progress: called with each batch's line.
        """
        model, stream = self.network(cell.model["weights"]), self.stream(cell)
        check_classes(model, stream)
        adapter = self.adapter(cell, model, self.training_data([cell], stream))
        if again:
            if cell.sink(out).exists():
                RecordWriter(cell.sink(out)).close()  # refused where another process is writing it
            for path in cell.places(out):
                path.unlink(missing_ok=True)
        if (packed := _packed_record(cell, out)) is not None:
            _refuse_other_weights(packed, model)
            return packed
        started(len(stream))
        return evaluation.run(
            stream,
            adapter,
            reset_on=stream.reset_on,
            metrics=cell.measures,
            record=cell.sink(out),
            command=command,
            checkpoint_seconds=checkpoint_seconds,
            progress=progress,
        )


def check_classes(model: nn.Module, stream: CorruptedStream) -> None:
    """Refuse a network that answers other classes than the stream has."""
    answered = getattr(model, "info", {}).get("num_classes", stream.num_classes)
    if answered != stream.num_classes:
        raise UsageError(
            f"the network answers {answered} classes, the stream has {stream.num_classes}: take other weights"
        )


def _packed_record(cell: Cell, out: Path) -> RunRecord | None:
    """Return the finished record of a cell where it lies there compressed; the loop looks after any other."""
    return None if cell.sink(out).exists() else cell.finished_record(out)


def _refuse_other_weights(record: RunRecord, model: nn.Module) -> None:
    if record.header["model"].get("sha256") != weights_sha256(model):
        raise UsageError(f"{record.path} was made with other weights of this name: choose another place, or delete it")
