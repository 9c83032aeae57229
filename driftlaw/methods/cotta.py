"""CoTTA: a student learns from an augmentation-averaged teacher and is partly restored (Wang et al., CVPR 2022)."""

from typing import Any, Literal, NamedTuple

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor, nn

from driftlaw.base import Adapter, AugmentationSettings, Plan, StepOutput
from driftlaw.components.augment import Augmentation, aligned, draw_augmentation
from driftlaw.components.batch_norm import use_batch_stats
from driftlaw.components.losses import soft_cross_entropy, symmetric_cross_entropy
from driftlaw.components.optimizers import make_optimizer, minimize_step
from driftlaw.components.parameters import require_grad_
from driftlaw.components.teacher import ema_update, make_teacher, stochastic_restore
from driftlaw.dense import pixels


class Drawn(NamedTuple):
    """Host values of a step: the anchor's confidence, the augmentations to average over, the seed of the restore."""

    confidence: Tensor
    augmentations: list[Augmentation]
    seed: int


class Cotta(Adapter, name="cotta"):
    """CoTTA trains a student on the predictions of its slowly averaged teacher, L = cross-entropy(teacher, student).

    If the mean confidence of the anchor, the model as it was trained, is below a threshold, the domain shift counts as
    large, and the teacher predicts the mean of its logits over many augmented copies of the batch. Otherwise it
    predicts the batch itself. After the student's step the teacher is updated by an exponential moving average, and
    every weight of the student is restored to its source value with a small probability. All three networks use batch
    statistics. Logits are the teacher's, from before the update.

    **Differences from the paper:** the teacher predicts the plain batch only if that prediction is used. The
    augmentation is drawn once per batch and copy, not once per image, as in the released code. The anchor's decision is
    made on the host, which waits for a GPU once per step.
    """

    title = "CoTTA"
    paper = "Continual test-time domain adaptation, CVPR 2022"
    adapts = "all parameters"
    forward_cost, backward_cost = 34, 2

    class Config(AugmentationSettings):
        """Settings of CoTTA; the defaults are those for CIFAR-10-C. Texts list CIFAR-10-C, CIFAR-100-C, ImageNet-C."""

        learning_rate: PositiveFloat = 1e-3
        """Step size: 1e-3, 1e-3 with Adam, 0.01 with SGD."""
        optimizer: Literal["adam", "sgd"] = "adam"
        """``adam`` (betas 0.9 and 0.999) or, on ImageNet-C, ``sgd`` (momentum 0.9, Nesterov)."""
        teacher_momentum: float = Field(default=0.999, ge=0.0, le=1.0)
        """Weight of the old teacher in the moving average."""
        confidence_threshold: float = Field(default=0.92, ge=0.0, le=1.0)
        """p_th: below this mean confidence of the anchor the teacher averages: 0.92, 0.72, 0.1."""
        augmentations: PositiveInt = 32
        """Number of augmented copies that the teacher averages over."""
        restore_probability: float = Field(default=0.01, ge=0.0, le=1.0)
        """Probability that a weight is restored to its source value after a step: 0.01, 0.01, 0.001."""
        symmetric: bool = False
        """Use half of the cross-entropy in either direction, as on ImageNet-C, instead of teacher to student alone."""

    def configure(self, model: nn.Module) -> None:
        """Adapt all parameters, with batch statistics."""
        require_grad_(model.parameters())
        use_batch_stats(model, self.config.stored_stats_weight)

    def setup(self, train_data: Any) -> None:
        """Create the teacher, the anchor and the student's optimizer."""
        self.teacher = make_teacher(self.model)
        self.anchor = make_teacher(self.model)
        self.optimizer = make_optimizer(self.config.optimizer, self.model.parameters(), self.config.learning_rate)

    def draw(self, images: Tensor) -> Plan:
        """Let the anchor decide whether the teacher averages, and draw its augmentations."""
        confidence = pixels(self.inference(self.anchor, images)).softmax(dim=1).amax(dim=1).mean()
        count = 0 if confidence >= self.config.confidence_threshold else self.config.augmentations
        dense = self.dense_augmentation(images) if count else None
        augmentations = [draw_augmentation(images, self.generator, dense) for _ in range(count)]
        seed = int(torch.randint(2**62, (), generator=self.generator))
        return Plan(host=Drawn(confidence, augmentations, seed))

    def update(self, images: Tensor, plan: Plan) -> StepOutput:
        """Predict with the teacher, train the student on it, update the teacher, restore some weights."""
        drawn: Drawn = plan.host
        averages = bool(drawn.augmentations)
        target = self._average(images, drawn.augmentations) if averages else self.inference(self.teacher, images)
        loss = symmetric_cross_entropy if self.config.symmetric else soft_cross_entropy
        minimize_step(loss(target, self.model(images)), self.optimizer)
        ema_update(self.teacher, self.model, self.config.teacher_momentum)
        stochastic_restore(
            self.model.parameters(),
            self.anchor.parameters(),
            probability=self.config.restore_probability,
            seed=drawn.seed,
        )
        return StepOutput(target, {"anchor_confidence": drawn.confidence})

    def _average(self, images: Tensor, augmentations: list[Augmentation]) -> Tensor:
        """Return the mean of the teacher's logits over augmented copies; of a pixel, over those that show it."""
        total, count = torch.zeros((), dtype=images.dtype, device=images.device), 0
        for each in augmentations:  # one pass per copy: copies in one pass would share their batch statistics
            logits, visible = aligned(self.inference(self.teacher, each(images)), each.align)
            # A pixel that no copy shows gets the values at the border of the copies.
            weight: Any = 1 if visible is None else visible.view(logits[:, :1].shape).to(logits.dtype).clamp(min=1e-6)
            total, count = total + weight * logits, count + weight
        return total / count

    def forward_logits(self, images: Tensor) -> Tensor:
        """Return the teacher's logits of the batch as it is."""
        logits: Tensor = self.teacher(images)
        return logits
