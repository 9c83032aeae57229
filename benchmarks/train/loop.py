"""Training loop: data on the device, mixed precision, resumable by epochs; writes weights and a record."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.precision import usable_precision
from benchmarks.train.batches import AugmentedBatches
from benchmarks.train.loss import training_loss
from benchmarks.train.recipe import Recipe
from benchmarks.train.segmentation import (
    CroppedBatches,
    SegmentationRecipe,
    copy_encoder,
    evaluate_segmentation,
    load_encoder,
    segmentation_loss,
    training_tensors,
)
from driftlaw.checkpoints import deferred_interrupts, load_checkpoint, save_checkpoint
from driftlaw.datasets import ImageDataset
from driftlaw.errors import DataError
from driftlaw.execution.graphs import GraphCache
from driftlaw.files import delete_leftovers, sha256_of
from driftlaw.hardware import environment
from driftlaw.models import build_model, save_model, weights_sha256
from driftlaw.records import RecordWriter
from driftlaw.records.writer import hash_lines

FORMAT = "driftlaw-train-1"
MAX_SAVING_SHARE = 0.02  # of the time is spent on checkpoints; large models on a slow disk are saved less often
EVALUATION_BATCH = 1000


@dataclass(frozen=True)
class Training:
    """A training run: model, data, recipe, and the file for the weights. Record and checkpoint are written beside it.

    Attributes:
        model_name: one of ``driftlaw list models``.
        train_images: training split.
        test_images: test split, for the accuracy in the record.
        recipe: hyper-parameters.
        weights: safetensors file to write.
        device: device to train on.
        seed: seed of the initial weights, the order of the images and their augmentation.
        command: command line to store in the record.
        checkpoint_seconds: smallest time between two checkpoints.
        data_dir: data directory, for the weights of an encoder.
    """

    model_name: str
    train_images: ImageDataset
    test_images: ImageDataset
    recipe: Recipe
    weights: Path
    device: torch.device
    seed: int = 0
    command: str = ""
    checkpoint_seconds: float = 30.0
    data_dir: Path | None = None

    @property
    def record(self) -> Path:
        """JSONL file that records how the weights were trained."""
        return self.weights.with_suffix(".train.jsonl")

    @property
    def checkpoint(self) -> Path:
        """File to resume from; it exists only while the training is unfinished."""
        return self.weights.with_suffix(".checkpoint.pt")

    def header(self, precision: str) -> dict[str, Any]:
        """Return the first line of the record."""
        return {
            "format": FORMAT,
            "command": self.command,
            **environment(self.device),
            "seed": self.seed,
            "model": self.model_name,
            "dataset": self.train_images.metadata(),
            "recipe": self.recipe.model_dump(mode="json"),
            "precision": precision,
        }


def train(training: Training, *, progress: Callable[[dict[str, Any]], None] = lambda line: None) -> dict[str, Any]:
    """Train a model, or resume from its checkpoint, and return the closing line of the record.

    Ctrl-C and SIGTERM save the last complete epoch first. The same call then resumes the training and ends with the
    same weights.

    Args:
        training: what to train.
        progress: called with the line of each epoch.

    Raises:
        DataError: if the loss is not finite, or the checkpoint is damaged or belongs to a different training.
    """
    run = _TrainingRun(training)
    fastest_kernels = torch.backends.cudnn.flags(enabled=True, benchmark=True)
    with fastest_kernels, RecordWriter(training.record, keep_lines=1 + run.epoch if run.epoch else 0) as record:
        for path in (training.checkpoint, training.weights):
            delete_leftovers(path)
        if not run.epoch:
            record.write(training.header(run.precision))
        try:
            with deferred_interrupts() as pending_interrupt:
                while run.epoch < training.recipe.epochs:
                    line = run.train_epoch(pending_interrupt)
                    record.write(line)
                    progress(line)
                    is_last = run.epoch == training.recipe.epochs
                    since = time.monotonic() - run.saved_at
                    if not is_last and checkpoint_due(since, run.saving_seconds, training.checkpoint_seconds):
                        run.save(record)
        except (KeyboardInterrupt, SystemExit):
            run.save(record)
            raise
        closing = run.finish()
        record.write(closing)
    training.checkpoint.unlink(missing_ok=True)
    return closing


def checkpoint_due(since: float, saving_seconds: float, checkpoint_seconds: float = 30.0) -> bool:
    """Return True if it is time for the next checkpoint.

    Args:
        since: seconds since the last checkpoint.
        saving_seconds: how long it took to write.
        checkpoint_seconds: smallest time between two checkpoints.

    >>> checkpoint_due(31, saving_seconds=0.1), checkpoint_due(31, saving_seconds=2)
    (True, False)
    """
    return since > max(checkpoint_seconds, saving_seconds / MAX_SAVING_SHARE)


class _TrainingRun:
    """A training in progress: everything that changes from epoch to epoch."""

    def __init__(self, training: Training) -> None:
        self.training, self.recipe, self.device = training, training.recipe, training.device
        self.precision = usable_precision(self.recipe.precision, self.device)
        self.generator = torch.Generator(self.device).manual_seed(training.seed)
        self.batches: AugmentedBatches | CroppedBatches
        self.training_loss, source = training_loss, None
        if isinstance(self.recipe, SegmentationRecipe):
            tensors = training_tensors(training.train_images, self.recipe, self.device)
            self.batches = CroppedBatches(*tensors, self.recipe, self.generator)
            self.training_loss = segmentation_loss
            source = load_encoder(self.recipe.encoder, training.data_dir) if self.recipe.encoder else None
        else:
            images, labels = _to_tensors(training.train_images, self.device)
            self.batches = AugmentedBatches(images, labels, self.recipe, self.generator)
        with torch.random.fork_rng(devices=[]):  # initial weights are drawn from the global generator
            torch.manual_seed(training.seed)
            classes, normalization = training.train_images.num_classes, self.recipe.normalisation()
            if source is not None:
                normalization = cast("dict[str, Any]", source.info)["normalise"]
            self.model = build_model(training.model_name, num_classes=classes, normalize=normalization)
        if source is not None:
            copy_encoder(self.model, source)
        self.model.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        on_gpu = self.device.type == "cuda"
        # Learning rates are replaced at every step. Fused: one kernel for all tensors.
        shared: dict[str, Any] = {"lr": self.recipe.learning_rate, "weight_decay": self.recipe.weight_decay}
        shared["fused"] = on_gpu or None
        self.optimizer: torch.optim.Optimizer
        if isinstance(self.recipe, SegmentationRecipe):
            encoder = {id(value) for value in cast("nn.Module", self.model.encoder).parameters()}
            parts = [
                {
                    "params": [value for value in self.model.parameters() if (id(value) in encoder) == inside],
                    "rate": rate,
                }
                for inside, rate in ((True, self.recipe.encoder_rate), (False, 1.0))
            ]
            self.optimizer = torch.optim.AdamW(parts, **shared)
        else:
            momentum = self.recipe.momentum
            parameters = [{"params": list(self.model.parameters()), "rate": 1.0}]
            self.optimizer = torch.optim.SGD(parameters, momentum=momentum, nesterov=momentum > 0, **shared)
        self.epoch = 0
        self.last_epoch_state: dict[str, Any] | None = None
        self.saved_at, self.saving_seconds = time.monotonic(), 0.0
        if training.checkpoint.exists():
            self._resume()
        compiles = self.recipe.compiled == "yes" or (self.recipe.compiled == "auto" and on_gpu)
        self.loss = torch.compile(self.training_loss, dynamic=False) if compiles else self.training_loss
        self.graphs = GraphCache(self.recipe.capture)
        # A captured graph reads the learning rate from device memory.
        captured = on_gpu and self.recipe.capture != "off"
        groups = self.optimizer.param_groups
        self.device_rates = [torch.zeros((), device=self.device) if captured else None for _ in groups]

    def train_epoch(self, interrupt: Callable[[], BaseException | None] = lambda: None) -> dict[str, Any]:
        """Train on all images once and return the line of the epoch. Raise ``interrupt()`` if it is not None."""
        started = time.perf_counter()
        self.model.train()
        losses = []
        for number, (images, labels) in enumerate(self.batches):
            losses.append(self._step(images, labels, self.epoch + number / len(self.batches)))
            if (error := interrupt()) is not None:
                raise error
        loss = float(torch.stack(losses).mean())  # the only time per epoch that the host waits for the device
        self.epoch += 1
        if not math.isfinite(loss):
            raise DataError(
                f"The loss became {loss} in epoch {self.epoch}, at a learning rate of up to "
                f"{self.recipe.learning_rate}. Use a lower one: --set learning_rate=…"
            )
        self.last_epoch_state = copy.deepcopy(self._state())
        rate = self.recipe.rate_at(self.epoch)
        timing = {"seconds": time.perf_counter() - started}
        return {"epoch": self.epoch, "loss": round(loss, 5), "learning_rate": round(rate, 6), "timing": timing}

    def _step(self, images: Tensor, labels: Tensor, epoch: float) -> Tensor:
        rate = self.recipe.rate_at(epoch)
        for group, device_rate in zip(self.optimizer.param_groups, self.device_rates, strict=True):
            own = rate * group["rate"]
            group["lr"] = own if device_rate is None else device_rate.fill_(own)
        if len(labels) < self.recipe.batch_size:  # the last batch of an epoch is not worth compiling and capturing
            return self._update(self.training_loss, images, labels)
        loss: Tensor = self.graphs.run("train", lambda *batch: self._update(self.loss, *batch), images, labels)
        return loss

    def _update(self, loss_function: Callable[..., Tensor], images: Tensor, labels: Tensor) -> Tensor:
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.precision == "bf16"):
            loss = loss_function(self.model, images, labels, self.recipe.consistency_weight)
        parameters = list(self.model.parameters())
        # Not backward(): it accumulates on the stream of the parameter's first use, which cannot be captured.
        for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            parameter.grad = gradient
        self.optimizer.step()
        return loss.detach()

    def save(self, record: RecordWriter) -> None:
        """Write a checkpoint of the last complete epoch, if there is one."""
        if self.last_epoch_state is None:
            return
        started = time.monotonic()
        record.sync()
        state = self.last_epoch_state | {"record_sha256": record.digest.hexdigest()}
        save_checkpoint(state, self.training.checkpoint)
        self.saved_at = time.monotonic()
        self.saving_seconds = self.saved_at - started

    def _identity(self) -> dict[str, Any]:
        """Return the header fields that a checkpoint must agree with: all but commit and command."""
        header = self.training.header(self.precision)
        return {key: value for key, value in header.items() if key not in ("commit", "command")}

    def _state(self) -> dict[str, Any]:
        return {
            "header": self._identity(),
            "epoch": self.epoch,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
        }

    def _resume(self) -> None:
        state = load_checkpoint(self.training.checkpoint, self.device)
        if state.get("header") != self._identity():
            raise DataError(
                f"{self.training.checkpoint} was written by a different training (recipe, data, seed or machine "
                "differ). Finish that training, delete the file, or choose another --out."
            )
        written = hash_lines(self.training.record, 1 + state["epoch"])[1].hexdigest()
        if state.get("record_sha256", written) != written:
            raise DataError(
                f"{self.training.checkpoint} does not belong to {self.training.record}, whose lines were changed. "
                "Restore the record, or delete both files to start again."
            )
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.generator.set_state(state["generator"].cpu())
        self.epoch = state["epoch"]

    def finish(self) -> dict[str, Any]:
        """Write the weights and return the closing line, with their accuracy in float32."""
        dataset = self.training.train_images.name
        if isinstance(self.recipe, SegmentationRecipe):
            results = evaluate_segmentation(self.model, self.training.test_images, self.device)
            metadata = {"dataset": dataset, **results}
        else:
            results = {"accuracy": evaluate(self.model, self.training.test_images, self.device)}
            metadata = {"dataset": dataset, **results, "augmentation": self.recipe.augmentation}
        save_model(self.model, self.training.weights, metadata=metadata)
        return {
            "closing": True,
            **results,
            "test": self.training.test_images.metadata(),
            "weights_sha256": weights_sha256(self.model),
            "file_sha256": sha256_of(self.training.weights),
        }


@torch.no_grad()
def evaluate(model: nn.Module, dataset: ImageDataset, device: torch.device) -> float:
    """Return the accuracy of a model in per cent, in eval mode and float32."""
    model.eval()
    images, labels = _to_tensors(dataset, device)
    correct = torch.zeros((), dtype=torch.long, device=device)
    for batch, targets in zip(
        torch.split(images, EVALUATION_BATCH), torch.split(labels, EVALUATION_BATCH), strict=True
    ):
        logits = model(batch.to(torch.float32).div(255).contiguous(memory_format=torch.channels_last))
        correct += (logits.argmax(1) == targets).sum()
    return round(100 * int(correct) / len(labels), 3)


def _to_tensors(dataset: ImageDataset, device: torch.device) -> tuple[Tensor, Tensor]:
    pixels = dataset.images(np.arange(len(dataset)))
    images = torch.from_numpy(np.ascontiguousarray(pixels)).to(device).permute(0, 3, 1, 2)
    return images, torch.from_numpy(np.asarray(dataset.labels)).to(device)
