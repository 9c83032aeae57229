"""The training loop: data on the device, bf16 where it runs, resumable by epochs, weights and a record at the end."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from driftlaw.checkpoints import load_checkpoint, save_checkpoint
from driftlaw.datasets import ImageSource
from driftlaw.errors import DataError
from driftlaw.files import sha256_of
from driftlaw.models import build_model, save_model, weights_sha256
from driftlaw.probes import environment, usable_precision
from driftlaw.records import RecordWriter
from driftlaw.training.augmentations import crop_and_flip
from driftlaw.training.augmix import Chains, augmix
from driftlaw.training.objectives import loss_of
from driftlaw.training.recipe import Recipe

FORMAT = "driftlaw-train-1"
CHECKPOINT_SECONDS = 30.0  # so that an epoch longer than this is never done twice
EVALUATION_BATCH = 1000


@dataclass(frozen=True)
class Training:
    """What to train, on what, how, and where the weights go; record and checkpoint lie beside them."""

    model_name: str
    train_images: ImageSource
    test_images: ImageSource
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
                normalise=self.recipe.normalisation(),
            )
        self.model.to(self.device, memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(),
            lr=self.recipe.learning_rate,
            momentum=self.recipe.momentum,
            nesterov=self.recipe.momentum > 0,
            weight_decay=self.recipe.weight_decay,
            fused=self.device.type == "cuda" or None,  # one kernel for all tensors; a CPU keeps its own way
        )
        self.epoch = 0
        self.last_whole: dict[str, Any] | None = None
        self.saved_at = time.monotonic()
        if training.checkpoint.exists():
            self._resume()
        self.loss_of = _maybe_compiled(loss_of, self.recipe.compiled, self.device)

    def next_epoch(self) -> dict[str, Any]:
        """Pass over all images once; return the epoch's line."""
        started = time.perf_counter()
        self.model.train()
        order = torch.randperm(len(self.images), generator=self.generator, device=self.device)
        batches = order.split(self.recipe.batch_size)
        losses = [self._step(chosen, self.epoch + number / len(batches)) for number, chosen in enumerate(batches)]
        loss = float(torch.stack(losses).mean())
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

    def _step(self, chosen: Tensor, epoch: float) -> Tensor:
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.rate_at(epoch)
        images = self._views(chosen)
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.precision == "bf16"):
            loss = self.loss_of(self.model, images, self.labels[chosen], self.recipe.consistency_weight)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def _views(self, chosen: Tensor) -> Tensor:
        """Return the images of a step: cropped and mirrored, with AugMix followed by two mixtures of the same."""
        images = crop_and_flip(
            self.images[chosen], self.generator, padding=self.recipe.crop_padding, flip=self.recipe.flip
        )
        if self.recipe.augmentation == "crop_flip":
            return images
        twice = images.repeat(2, 1, 1, 1)
        mixed = augmix(twice, Chains.from_generator(len(twice), self.generator))
        return torch.cat([images.to(torch.float32).div(255), mixed])

    def maybe_save(self, record: RecordWriter) -> None:
        """Write a checkpoint if the last one is old and the end is not reached."""
        if self.epoch < self.recipe.epochs and time.monotonic() - self.saved_at > CHECKPOINT_SECONDS:
            self.save(record)

    def save(self, record: RecordWriter) -> None:
        """Write a checkpoint of the last whole epoch, the one that an interrupted epoch starts from again."""
        if self.last_whole is None:
            return
        record.sync()
        save_checkpoint(self.last_whole, self.training.checkpoint)
        self.saved_at = time.monotonic()

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
def evaluate(model: nn.Module, source: ImageSource, device: torch.device) -> float:
    """Return the accuracy in per cent, in eval mode and float32."""
    model.eval()
    images, labels = _on_device(source, device)
    right = torch.zeros((), dtype=torch.long, device=device)
    for chosen, truth in zip(images.split(EVALUATION_BATCH), labels.split(EVALUATION_BATCH), strict=True):
        answers = model(chosen.to(torch.float32).div(255).contiguous(memory_format=torch.channels_last))
        right += (answers.argmax(1) == truth).sum()
    return round(100 * int(right) / len(labels), 3)


def _on_device(source: ImageSource, device: torch.device) -> tuple[Tensor, Tensor]:
    pixels = source.images(np.arange(len(source)))
    images = torch.from_numpy(np.ascontiguousarray(pixels)).to(device).permute(0, 3, 1, 2)
    return images, torch.from_numpy(np.asarray(source.labels)).to(device)


def _identity(header: dict[str, Any]) -> dict[str, Any]:
    """Return what must agree for a checkpoint to be this training's; commit and command may change in between."""
    return {key: value for key, value in header.items() if key not in ("commit", "command")}


def _maybe_compiled(function: Callable[..., Tensor], compiled: str, device: torch.device) -> Callable[..., Tensor]:
    wanted = compiled == "yes" or (compiled == "auto" and device.type == "cuda")
    # An epoch's last batch is smaller. Left to itself, the compiler then makes one graph for batches of any size and
    # uses that slower one for all of them from the second epoch on; this way each of the two sizes has its own.
    return torch.compile(function, dynamic=False) if wanted else function
