"""Watching: one adapter over images as they arrive, one JSON line per image, and a checkpoint to continue from."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from driftlaw.base import Adapter
from driftlaw.checkpoints import deferred_interrupts, load_checkpoint, save_checkpoint
from driftlaw.datasets.protocol import Pixels
from driftlaw.errors import DataError, UsageError, warn_user
from driftlaw.files import atomic_path, delete_leftovers
from driftlaw.hardware import to_device
from driftlaw.records import RecordWriter
from driftlaw.records.jsonl import Line, iter_lines
from driftlaw.records.writer import hash_lines
from driftlaw.serving.image_sources import Arrival, FolderSource, VideoSource
from driftlaw.serving.label_maps import LabelMap, predict_label_maps

ImageSource = FolderSource | VideoSource


class Watch:
    """An adapter over images as they arrive, and the file with one line per image.

    A new object with the same arguments continues after the last line. The adapter continues from the checkpoint
    beside the file. Images between the checkpoint and the last line are read again, if they still exist, so that the
    adapter is the same as without the interruption. They get no second line.

    Args:
        adapter: the adapter.
        path: JSONL file.
        identity: what must be the same for a run to continue, as JSON data.
        class_names: one name per class; empty if unknown.
        batch_size: largest number of images that are predicted together. Images do not wait for others.
        adapt_every: the model is updated on every n-th batch; the others are only predicted.
        label_maps: folder for label maps as PNG files, if the network predicts a class per pixel.
        overlays: folder for overlays as PNG files.

    Attributes:
        lines: number of lines in the file.
        done: names of the files that have a line.
        next_frame: number of the first frame without a line.

    Raises:
        UsageError: the file was written by a different command.
        DataError: the file or its checkpoint is damaged.
    """

    def __init__(
        self,
        adapter: Adapter,
        path: Path,
        identity: Line,
        *,
        class_names: Sequence[str] = (),
        batch_size: int = 1,
        adapt_every: int = 1,
        label_maps: Path | None = None,
        overlays: Path | None = None,
    ) -> None:
        self.adapter, self.path, self.identity, self.class_names = adapter, path, identity, class_names
        self.batch_size, self.adapt_every = batch_size, adapt_every
        self.label_maps, self.overlays = label_maps, overlays
        self.checkpoint = path.with_name(path.name + ".checkpoint.pt")
        self.lines = self.next_frame = self._next_batch = 0
        self.done: set[str] = set()
        self._png_names: set[str] = set()  # of images from files
        self._received = 0  # lines whose images the adapter has received
        self._again: list[Line] = []  # lines whose images it has to receive again
        self._saved, self._saved_at = -1, time.monotonic()
        self._device = next(adapter.model.parameters()).device
        if self.checkpoint.exists():
            self._resume()
        elif path.exists() and path.stat().st_size:
            raise UsageError(f"{path} exists, but not its checkpoint. Choose another --out, or delete the file.")

    def _resume(self) -> None:
        state = load_checkpoint(self.checkpoint, self._device)
        identity, received, adapter = (state.get(key) for key in ("identity", "lines", "adapter"))
        if not isinstance(identity, dict) or not isinstance(received, int) or not isinstance(adapter, dict):
            raise DataError(f"{self.checkpoint} is not a checkpoint of `driftlaw watch`. Choose another --out.")
        if differing := [key for key in self.identity | identity if self.identity.get(key) != identity.get(key)]:
            raise UsageError(
                f"{self.path} was written by a different command (differing: {', '.join(differing)}). Choose another "
                "--out, or delete the file and its checkpoint."
            )
        if hash_lines(self.path, received)[1].hexdigest() != state.get("sha256"):
            raise DataError(f"{self.path} was changed after its checkpoint was written. Choose another --out.")
        self.adapter.load_state_dict(adapter)
        for _, line in iter_lines(self.path):
            self._again += [line] if self.lines >= received else []
            self._count(line)
        self._received = received

    def _count(self, line: Line) -> None:
        self.lines += 1
        self.done |= {line["file"]} if "file" in line else set()
        self._png_names |= {line["png"]} if "file" in line and "png" in line else set()
        self.next_frame = line.get("frame", self.next_frame - 1) + 1
        self._next_batch = line.get("batch", self._next_batch - 1) + 1

    def run(
        self,
        source: ImageSource,
        *,
        checkpoint_seconds: float = 30.0,
        on_line: Callable[[Line], None] = lambda line: None,
    ) -> None:
        """Predict the images of a source until it ends. Ctrl-C and SIGTERM save a checkpoint first.

        Args:
            source: the images that have no line yet.
            checkpoint_seconds: seconds between checkpoints.
            on_line: called with every line that was written.
        """
        with RecordWriter(self.path, keep_lines=self.lines) as writer, deferred_interrupts() as pending_interrupt:
            delete_leftovers(self.checkpoint)
            self._save(writer)
            for lines in itertools.chain(self._read_again(source), self._predictions(source)):
                for line in lines:
                    writer.write(line)
                    self._count(line)
                    self._received += 1
                    on_line(line)
                if pending_interrupt():
                    break
                if time.monotonic() - self._saved_at >= checkpoint_seconds:
                    self._save(writer)
            self._save(writer)

    def _save(self, writer: RecordWriter) -> None:
        if self._saved == self._received:
            return
        writer.sync()
        # While images are read again, the file has more lines than the adapter has received.
        digest = hash_lines(self.path, self._received)[1] if self._again else writer.digest
        state = {"identity": self.identity, "lines": self._received, "sha256": digest.hexdigest()}
        save_checkpoint(state | {"adapter": self.adapter.state_dict()}, self.checkpoint)
        self._saved, self._saved_at = self._received, time.monotonic()

    def _read_again(self, source: ImageSource) -> Iterator[list[Line]]:
        """Pass images between the checkpoint and the last line to the adapter; yields no lines."""
        missing = 0
        while self._again:
            number, group = next(itertools.groupby(self._again, lambda line: line.get("batch", -1)))
            batch = list(group)
            readable = batch if number >= 0 else []  # -1: images that cannot be read
            images = [np.asarray(source.size.fit(image)) for image in map(source.read, readable) if image is not None]
            missing += len(readable) - len(images)
            if images:
                self._step(images, number)
            self._received, self._again = self._received + len(batch), self._again[len(batch) :]
            yield []
        if missing:
            warn_user(f"{missing} images after the checkpoint cannot be read again. The adapter lost their updates.")

    def _predictions(self, source: ImageSource) -> Iterator[list[Line]]:
        """Yield the lines of every batch, and no lines while nothing arrives."""
        batch: list[Arrival] = []
        for arrival in itertools.chain(source, [None]):
            if arrival is not None and arrival.pixels is None:
                yield [{**arrival.key, "error": arrival.error}]
                continue
            batch += [] if arrival is None else [arrival]
            if arrival is None or len(batch) == self.batch_size:
                yield self._predict(batch) if batch else []
                batch = []

    def _predict(self, batch: Sequence[Arrival]) -> list[Line]:
        number = self._next_batch
        pixels = [arrival.pixels for arrival in batch if arrival.pixels is not None]
        logits, events = self._step(pixels, number)
        if logits.ndim == 2:
            rows = self._describe_logits(logits)
        else:
            maps = predict_label_maps(logits, pixels[0].shape[:2])
            rows = [self._describe_label_map(*pair) for pair in zip(batch, maps, strict=True)]
        common = {"step": self.adapter.steps, "batch": number}
        lines: list[Line] = [{**arrival.key, **row, **common} for arrival, row in zip(batch, rows, strict=True)]
        lines[-1] |= {"guard": events} if events else {}
        return lines

    def _describe_logits(self, logits: torch.Tensor) -> list[Line]:
        rows = []
        finite = logits.amax(1).isfinite().tolist()  # -inf is a legal logit of a class that is ruled out
        confidences, classes = (values.tolist() for values in logits.float().softmax(1).max(1))
        for usable, index, confidence in zip(finite, classes, confidences, strict=True):
            row: Line = {"class": index if usable else None}
            row |= {"label": self.class_names[index]} if usable and index < len(self.class_names) else {}
            rows.append(row | {"confidence": round(confidence, 6) if usable else None})
        return rows

    def _describe_label_map(self, arrival: Arrival, label_map: LabelMap) -> Line:
        """Write the PNG files of an image, and return its classes and the name of the files."""
        line: Line = {"classes": label_map.describe(self.class_names)}
        image, file = arrival.original, arrival.key.get("file")
        if image is None or (self.label_maps is None and self.overlays is None):
            return line
        if file is None:
            name = f"{arrival.key['frame']:08}.png"
        else:
            name = Path(file).with_suffix(".png").as_posix()
            name = f"{file}.png" if name in self._png_names else name  # if names differ in their suffix only
            self._png_names.add(name)
        if self.label_maps is not None:
            with atomic_path(self.label_maps / name) as path:
                label_map.image(image.size).save(path)
        if self.overlays is not None:
            with atomic_path(self.overlays / name) as path:
                label_map.overlay(image).save(path)
        return line | {"png": name}

    def _step(self, pixels: Sequence[Pixels], number: int) -> tuple[torch.Tensor, list[Line]]:
        """Return the logits of images, and the guard's events."""
        images = to_device(torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2), self._device)
        if number % self.adapt_every:
            return self.adapter.predict(images), []
        logits, guard = self.adapter.step(images).logits, self.adapter.guard
        return logits, [
            {"action": event.action, "reason": event.reason} for event in guard.step_events
        ] if guard else []
