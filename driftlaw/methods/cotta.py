"""CoTTA: a student learns from an augmentation-averaged teacher and is restored in part (Wang et al., CVPR 2022)."""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor, nn

from driftlaw.base import Adapter, BatchStatsSettings, Plan, StepOutput
from driftlaw.components.augment import AugmentParams, augment
from driftlaw.components.batch_norm import use_batch_stats
from driftlaw.components.losses import soft_cross_entropy, symmetric_cross_entropy
from driftlaw.components.optimizers import make_optimizer, minimize_step
from driftlaw.components.parameters import require_grad_
from driftlaw.components.teacher import ema_update, make_teacher, stochastic_restore


class Cotta(Adapter, name="cotta"):
    """Minimises the cross-entropy from a teacher's answer to the student's; all parameters of the student move.

    The teacher is the slow average of the student, the anchor is the network as it came. Where the anchor's mean
    confidence on a batch is under a threshold, the shift is taken for large, and the teacher answers with the mean of
    its logits over many augmented copies of the batch; elsewhere with those of the batch as it is. After the student's
    step the teacher follows, and every weight of the student goes back to its source value with a small probability.
    All three normalize with the batch at hand. The answer is the teacher's, from before the step.

    **Departs from the paper:** the teacher answers the plain batch only where that answer is used; the augmentation is
    drawn once a batch and copy, not once an image, as in the released code. What the anchor decides is a branch, so a
    GPU is waited for once a step.
    """

    title = "CoTTA"
    paper = "Continual test-time domain adaptation, CVPR 2022"
    adapts = "all parameters"
    forward_cost, backward_cost = 34, 2

    class Config(BatchStatsSettings):
        """Settings of CoTTA; the defaults are those for CIFAR-10-C, others for CIFAR-100-C and ImageNet-C."""

        learning_rate: PositiveFloat = 1e-3
        """Step size; 1e-3, 1e-3 with Adam, 0.01 with SGD."""
        optimizer: Literal["adam", "sgd"] = "adam"
        """``adam`` (betas 0.9 and 0.999) or, on ImageNet-C, ``sgd`` (momentum 0.9, Nesterov)."""
        teacher_momentum: float = Field(default=0.999, ge=0.0, le=1.0)
        """How much of itself the teacher keeps in a step."""
        confidence_threshold: float = Field(default=0.92, ge=0.0, le=1.0)
        """p_th: under this mean confidence of the anchor the teacher averages; 0.92, 0.72, 0.1."""
        augmentations: PositiveInt = 32
        """Augmented copies the teacher averages over."""
        restore_probability: float = Field(default=0.01, ge=0.0, le=1.0)
        """Of every weight to go back to its source value after a step; 0.01, 0.01, 0.001."""
        symmetric: bool = False
        """Half of the cross-entropy in either direction, on ImageNet-C, in place of teacher to student alone."""

    def configure(self, model: nn.Module) -> None:
        """Turn on all gradients, and batch statistics."""
        require_grad_(model.parameters())
        use_batch_stats(model, self.config.share_of_source)

    def setup(self, train_data: Any) -> None:
        """Make the teacher, the anchor and the student's optimizer."""
        self.teacher = make_teacher(self.model)
        self.anchor = make_teacher(self.model)
        self.optimizer = make_optimizer(
            self.config.optimizer, self.model.parameters(), learning_rate=self.config.learning_rate
        )

    def update(self, images: Tensor, plan: Plan) -> StepOutput:
        """Answer with the teacher, let the student learn from it, let the teacher follow, restore some weights."""
        answer, confidence = self._teach(images)
        minimize_step(self._loss(answer, self.model(images)), self.optimizer)
        ema_update(self.teacher, self.model, self.config.teacher_momentum)
        stochastic_restore(
            self.model.parameters(),
            self.anchor.parameters(),
            probability=self.config.restore_probability,
            seed=int(torch.randint(2**62, (), generator=self.generator)),
        )
        return StepOutput(answer, {"anchor_confidence": confidence})

    def forward_logits(self, images: Tensor) -> Tensor:
        """Return the teacher's logits of the batch as it is."""
        return self.teacher(images)

    @torch.no_grad()
    def _teach(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return the teacher's logits, and the anchor's mean confidence, which decides how they are made."""
        confidence = self.replayed(self._anchored, images).logits.softmax(dim=1).amax(dim=1).mean()
        if confidence >= self.config.confidence_threshold:
            return self.replayed(self._taught, images).logits, confidence
        draws = [AugmentParams.from_generator(self.generator) for _ in range(self.config.augmentations)]
        # A pass each: copies that shared one would also share their batch statistics.
        total = sum(self.replayed(self._taught, augment(images, draw)).logits for draw in draws)
        return total / len(draws), confidence

    def _anchored(self, images: Tensor) -> StepOutput:
        return StepOutput(self.anchor(images))

    def _taught(self, images: Tensor) -> StepOutput:
        return StepOutput(self.teacher(images))

    def _loss(self, answer: Tensor, logits: Tensor) -> Tensor:
        return symmetric_cross_entropy(answer, logits) if self.config.symmetric else soft_cross_entropy(answer, logits)
