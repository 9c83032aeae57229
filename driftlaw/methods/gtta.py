"""GTTA-MIX: gradual test-time adaptation through mixed images (Marsden, Döbler and Yang, arXiv:2208.07736, 2022)."""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field, PositiveFloat
from torch import Tensor, nn

from driftlaw.base import Adapter, BatchStatsSettings, Plan, StepOutput
from driftlaw.components.batch_norm import use_batch_stats
from driftlaw.components.features import most_similar
from driftlaw.components.optimizers import make_optimizer, minimize_step
from driftlaw.components.parameters import require_grad_
from driftlaw.components.train_data import TrainData


class Gtta(Adapter, name="gtta"):
    """Minimises the cross-entropy of source images mixed with test images, then of pseudo-labels; all parameters move.

    A pseudo-label is kept where its confidence reaches √c, with c the running mean of the confidence of past batches
    and of this one. Each image of a source batch as large as the test batch is mixed with the test image whose
    predicted probabilities are most similar to its own (largest inner product), x = ⅓ test + ⅔ source: domains between
    the source and the test's. One step on their true labels; then one on the kept pseudo-labels of the test batch. The
    network normalises with the batch at hand. The answer is the second forward pass of the test batch, between the
    two steps.

    **Departs from the paper:** a batch of which no pseudo-label is kept takes no second step, where the mean over no
    label would be NaN and Adam would move on its moments alone; to know that, a GPU is waited for once a step. Source
    images are drawn with replacement. Of the paper's two ways to make domains in between, mixing and style transfer,
    this is the first.
    """

    title = "GTTA-MIX"
    paper = "Introducing intermediate domains for effective self-training during test-time, arXiv:2208.07736"
    predicts_before_update = False
    needs_train_data = True
    adapts = "all parameters"
    forward_cost, backward_cost = 4, 4

    class Config(BatchStatsSettings):
        """Settings of GTTA-MIX; one set for CIFAR-10-C, CIFAR-100-C and ImageNet-C."""

        learning_rate: PositiveFloat = 1e-5
        """Step size of both steps."""
        optimizer: Literal["adam", "sgd"] = "adam"
        """``adam`` (betas 0.9 and 0.999) or ``sgd`` (momentum 0.9, Nesterov)."""
        test_share: float = Field(default=1 / 3, ge=0.0, le=1.0)
        """λ, how much of a mixed image is the test's."""
        confidence_momentum: float = Field(default=0.9, ge=0.0, le=1.0)
        """How much of the running mean confidence is kept from batch to batch."""
        first_confidence: float = Field(default=0.9, ge=0.0, le=1.0)
        """What the running mean confidence starts from."""

    confidence: Tensor

    def configure(self, model: nn.Module) -> None:
        """Turn on all gradients, and batch statistics."""
        require_grad_(model.parameters())
        use_batch_stats(model, self.config.share_of_source)

    def setup(self, train_data: Any) -> None:
        """Make the optimizer and the running mean confidence."""
        self.train_data = TrainData.of(train_data)
        self.optimizer = make_optimizer(self.config.optimizer, self.model.parameters(), self.config.learning_rate)
        like = next(self.model.parameters())
        start = torch.tensor(self.config.first_confidence, dtype=like.dtype, device=like.device)
        self.register_buffer("confidence", start)

    def update(self, images: Tensor, plan: Plan) -> StepOutput:
        """Learn from mixed images, answer, then learn from the kept pseudo-labels."""
        with torch.no_grad():
            predicted = self.model(images).softmax(dim=1)
        pseudo_labels, kept = self._keep(predicted)
        mixed, labels = self._mix(images, predicted)
        minimize_step(F.cross_entropy(self.model(mixed), labels), self.optimizer)
        logits = self.model(images)
        if kept.any():
            minimize_step(F.cross_entropy(logits[kept], pseudo_labels[kept]), self.optimizer)
        return StepOutput(
            logits.detach(), {"kept": kept.to(logits.dtype).mean(), "confidence": self.confidence.clone()}
        )

    def _keep(self, predicted: Tensor) -> tuple[Tensor, Tensor]:
        """Return the pseudo-labels (n,) and which of them are kept (n,); the running mean confidence moves."""
        confidences, pseudo_labels = predicted.max(dim=1)
        self.confidence.lerp_(confidences.mean(), 1 - self.config.confidence_momentum)
        return pseudo_labels, confidences >= self.confidence.sqrt()

    @torch.no_grad()
    def _mix(self, images: Tensor, predicted: Tensor) -> tuple[Tensor, Tensor]:
        """Return source images, each mixed with its most similar test image, and their labels."""
        originals, labels = self.train_data.draw(images, self.generator)
        answers = self.model(originals).softmax(dim=1)
        partner = most_similar(answers, predicted)
        return torch.lerp(originals, images[partner], self.config.test_share), labels
