"""The training loop: data on the device, bf16 where it runs, resumable by epochs, weights and a record at the end."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from driftlaw.checkpoints import load_checkpoint, save_checkpoint
from driftlaw.datasets import ImageDataset
from driftlaw.errors import DataError
from driftlaw.files import sha256_of
from driftlaw.hardware import environment, usable_precision
from driftlaw.models import build_model, save_model, weights_sha256
from driftlaw.records import RecordWriter
from driftlaw.training.augment import crop_and_flip
from driftlaw.training.augmix import Chains, augmix
from driftlaw.training.capture import Replay
from driftlaw.training.loss import loss_of
from driftlaw.training.recipe import Recipe

FORMAT = "driftlaw-train-1"
CHECKPOINT_SECONDS = 30.0  # so that an epoch longer than this is never done twice
SAVING_SHARE = 0.02  # of the time, at most, goes into checkpoints: those of a large network on a slow disk are rarer
CHUNK_VALUES = 8192 * 3 * 32 * 32
"""Values of images that a GPU augments at once. AugMix is some 800 small kernels whatever the number of images, which a
host takes milliseconds to launch; for 8,192 mixed CIFAR images, the views of 32 steps, that is 26 launches a step, and
the work takes half a gigabyte."""
EVALUATION_BATCH = 1000


@dataclass(frozen=True)
class Training:
    """What to train, on what, how, and where the weights go; record and checkpoint lie beside them."""

    model_name: str
    train_images: ImageDataset
    test_images: ImageDataset
    recipe: Recipe
    weights: Path
    device: torch.device
    seed: int = 0
    command: str = ""

    @property
    def record(self) -> Path:
        """The JSONL file that tells how the weights were made."""
        return self.weights.with_suffix(".train.jsonl")

    @property
    def checkpoint(self) -> Path:
        """The state to go on from after a kill; gone when the training is done."""
        return self.weights.with_suffix(".checkpoint.pt")

    def header(self, precision: str) -> dict[str, Any]:
        """Return the first line of the record."""
        return {
            "format": FORMAT,
            "command": self.command,
            **environment(self.device),
            "seed": self.seed,
            "model": self.model_name,
            "dataset": self.train_images.facts(),
            "recipe": self.recipe.model_dump(mode="json"),
            "precision": precision,
        }


def train(training: Training, *, progress: Callable[[dict[str, Any]], None] = lambda line: None) -> dict[str, Any]:
    """Train to the end, from the last checkpoint where there is one; return the closing line of the record.

    Args:
        training: what to do.
        progress: called with each epoch's line.
    """
    run = _Run(training)
    fastest_kernels = torch.backends.cudnn.flags(enabled=True, benchmark=True)
    with fastest_kernels, RecordWriter(training.record, keep_lines=1 + run.epoch if run.epoch else 0) as record:
        if not run.epoch:
            record.write(training.header(run.precision))
        try:
            while run.epoch < training.recipe.epochs:
                line = run.next_epoch()
                record.write(line)
                progress(line)
                run.maybe_save(record)
        except KeyboardInterrupt:
            run.save(record)
            raise
        closing = run.finish()
        record.write(closing)
    training.checkpoint.unlink(missing_ok=True)
    return closing


class _Run:
    """A training under way: everything that changes from epoch to epoch."""

    def __init__(self, training: Training) -> None:
        self.training, self.recipe, self.device = training, training.recipe, training.device
        self.precision = usable_precision(self.recipe.precision, self.device)
        self.generator = torch.Generator(self.device).manual_seed(training.seed)
        self.images, self.labels = _on_device(training.train_images, self.device)
        with torch.random.fork_rng(devices=[]):  # the layers' initial weights are drawn from the global generator
            torch.manual_seed(training.seed)
            self.model = build_model(
                training.model_name,
                num_classes=training.train_images.num_classes,
                normalize=self.recipe.normalisation(),
            )
        self.model.to(self.device, memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(),
            lr=self.recipe.learning_rate,  # set anew at every step
            momentum=self.recipe.momentum,
            nesterov=self.recipe.momentum > 0,
            weight_decay=self.recipe.weight_decay,
            fused=self.device.type == "cuda" or None,  # one kernel for all tensors; a CPU keeps its own way
        )
        self.epoch = 0
        self.last_whole: dict[str, Any] | None = None
        self.saved_at, self.saving_seconds = time.monotonic(), 0.0
        if training.checkpoint.exists():
            self._resume()
        self.loss_of = _maybe_compiled(loss_of, self.recipe.compiled, self.device)
        captures = self.recipe.capture != "off" and self.device.type == "cuda"
        self.replay = Replay(self._learn, self.device, must=self.recipe.capture == "on") if captures else None
        # a graph reads the rate from its place on the device
        self.rate_on_device = torch.zeros((), device=self.device) if captures else None

    def next_epoch(self) -> dict[str, Any]:
        """Pass over all images once; return the epoch's line."""
        started = time.perf_counter()
        self.model.train()
        with self.replay.on_stream() if self.replay else nullcontext():
            order = torch.randperm(len(self.images), generator=self.generator, device=self.device)
            batches = order.split(self.recipe.batch_size)
            steps = ((self.epoch + number / len(batches), *batch) for number, batch in enumerate(self._load(batches)))
            losses = [self._step(images, labels, epoch) for epoch, images, labels in steps]
            loss = float(torch.stack(losses).mean())  # the only time in an epoch that the host waits for the device
        self.epoch += 1
        if not math.isfinite(loss):
            raise DataError(
                f"the loss became {loss} in epoch {self.epoch} at a rate of up to {self.recipe.learning_rate}: give a "
                "lower one with --set learning_rate=…"
            )
        self.last_whole = copy.deepcopy(self._state())
        rate = self.recipe.rate_at(self.epoch)
        timing = {"seconds": time.perf_counter() - started}
        return {"epoch": self.epoch, "loss": round(loss, 5), "learning_rate": round(rate, 6), "timing": timing}

    def _step(self, images: Tensor, labels: Tensor, epoch: float) -> Tensor:
        rate = self.recipe.rate_at(epoch)
        for group in self.optimizer.param_groups:
            group["lr"] = rate if self.rate_on_device is None else self.rate_on_device.fill_(rate)
        return (self.replay or self._learn)(images, labels)

    def _learn(self, images: Tensor, labels: Tensor) -> Tensor:
        # An epoch's last batch may be smaller. To compile another graph for it would take longer than it ever gains.
        loss_of_batch = self.loss_of if len(labels) == self.recipe.batch_size else loss_of
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.precision == "bf16"):
            loss = loss_of_batch(self.model, images, labels, self.recipe.consistency_weight)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def _load(self, batches: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield images and labels of one step after another; images are made for many steps at once."""
        for first in range(0, len(batches), self.chunk_steps):
            chunk = batches[first : first + self.chunk_steps]
            yield from zip(self._views(chunk), (self.labels[chosen] for chosen in chunk), strict=True)

    @property
    def chunk_steps(self) -> int:
        """For how many steps images are augmented at once."""
        if self.device.type == "cpu":  # launches cost it nothing, and a step's images stay in its caches
            return 1
        mixtures = 2 if self.recipe.augmentation == "augmix" else 1
        return max(1, CHUNK_VALUES // (mixtures * self.recipe.batch_size * math.prod(self.images.shape[1:])))

    def _views(self, chunk: Sequence[Tensor]) -> Iterator[Tensor]:
        """Yield the images of each batch: cropped and mirrored, with AugMix followed by two mixtures of the same."""
        sizes = [len(chosen) for chosen in chunk]
        images = self.images[torch.cat(tuple(chunk))]
        images = crop_and_flip(images, self.generator, padding=self.recipe.crop_padding, flip=self.recipe.flip)
        if self.recipe.augmentation == "crop_flip":
            yield from images.split(sizes)
            return
        twice = images.repeat(2, 1, 1, 1)
        first, second = augmix(twice, Chains.from_generator(len(twice), self.generator)).split(len(images))
        plain = images.contiguous().to(torch.float32).div_(255)
        for views in zip(plain.split(sizes), first.split(sizes), second.split(sizes), strict=True):
            yield torch.cat(views)

    def maybe_save(self, record: RecordWriter) -> None:
        """Write a checkpoint if the last one is old and the end is not reached."""
        pause = max(CHECKPOINT_SECONDS, self.saving_seconds / SAVING_SHARE)
        if self.epoch < self.recipe.epochs and time.monotonic() - self.saved_at > pause:
            self.save(record)

    def save(self, record: RecordWriter) -> None:
        """Write a checkpoint of the last whole epoch, the one that an interrupted epoch starts from again."""
        if self.last_whole is None:
            return
        started = time.monotonic()
        record.sync()
        save_checkpoint(self.last_whole, self.training.checkpoint)
        self.saved_at = time.monotonic()
        self.saving_seconds = self.saved_at - started

    def _state(self) -> dict[str, Any]:
        return {
            "header": _identity(self.training.header(self.precision)),
            "epoch": self.epoch,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
        }

    def _resume(self) -> None:
        state = load_checkpoint(self.training.checkpoint, self.device)
        if state["header"] != _identity(self.training.header(self.precision)):
            raise DataError(
                f"{self.training.checkpoint} was written by another training (recipe, data, seed or machine differ): "
                "finish that one, delete the file, or choose another --out"
            )
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.generator.set_state(state["generator"].cpu())
        self.epoch = state["epoch"]

    def finish(self) -> dict[str, Any]:
        """Write the weights; return the closing line, with the accuracy of exactly these weights in float32."""
        accuracy = evaluate(self.model, self.training.test_images, self.device)
        facts = {
            "dataset": self.training.train_images.name,
            "accuracy": accuracy,
            "augmentation": self.recipe.augmentation,
        }
        save_model(self.model, self.training.weights, facts=facts)
        return {
            "closing": True,
            "accuracy": accuracy,
            "test": self.training.test_images.facts(),
            "weights_sha256": weights_sha256(self.model),
            "file_sha256": sha256_of(self.training.weights),
        }


@torch.no_grad()
def evaluate(model: nn.Module, source: ImageDataset, device: torch.device) -> float:
    """Return the accuracy in per cent, in eval mode and float32."""
    model.eval()
    images, labels = _on_device(source, device)
    right = torch.zeros((), dtype=torch.long, device=device)
    for chosen, truth in zip(images.split(EVALUATION_BATCH), labels.split(EVALUATION_BATCH), strict=True):
        answers = model(chosen.to(torch.float32).div(255).contiguous(memory_format=torch.channels_last))
        right += (answers.argmax(1) == truth).sum()
    return round(100 * int(right) / len(labels), 3)


def _on_device(source: ImageDataset, device: torch.device) -> tuple[Tensor, Tensor]:
    pixels = source.images(np.arange(len(source)))
    images = torch.from_numpy(np.ascontiguousarray(pixels)).to(device).permute(0, 3, 1, 2)
    return images, torch.from_numpy(np.asarray(source.labels)).to(device)


def _identity(header: dict[str, Any]) -> dict[str, Any]:
    """Return what must agree for a checkpoint to be this training's; commit and command may change in between."""
    return {key: value for key, value in header.items() if key not in ("commit", "command")}


def _maybe_compiled(function: Callable[..., Tensor], compiled: str, device: torch.device) -> Callable[..., Tensor]:
    wanted = compiled == "yes" or (compiled == "auto" and device.type == "cuda")
    # dynamic=False: all batches that come this way have one size
    return torch.compile(function, dynamic=False) if wanted else function
