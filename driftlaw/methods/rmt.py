"""RMT: a robust mean teacher with source prototypes and replay (Döbler, Marsden and Yang, CVPR 2023)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor, nn

from driftlaw.base import Adapter, BatchStatsSettings, Plan, StepOutput
from driftlaw.components.augment import AugmentParams, augment
from driftlaw.components.batch_norm import use_batch_stats
from driftlaw.components.cache import cached, fingerprint
from driftlaw.components.contrastive import contrastive_loss, make_projector
from driftlaw.components.features import class_means, feature_size, logits_and_features, nearest_prototype
from driftlaw.components.losses import symmetric_cross_entropy
from driftlaw.components.optimizers import make_optimizer
from driftlaw.components.parameters import require_grad_
from driftlaw.components.teacher import ema_update, make_teacher, warm_up_teacher_student
from driftlaw.components.train_data import TrainData, number_of_batches


class Rmt(Adapter, name="rmt"):
    """Minimises disagreement with a teacher, a contrast to source prototypes and the source loss; all parameters move.

    Before its first step the method looks at the source: the mean penultimate features of every class are its
    prototypes; then student and teacher are warmed up on source images, by symmetric cross-entropy between the two at
    a rate that rises linearly. A batch x with its augmented copy x̃ then gives three losses:

    - the symmetric cross-entropy of the teacher's answer to x with the student's to x and to x̃, half of either;
    - a contrastive loss that draws together, for each image, its features, those of its copy and the prototype nearest
      to it, all through a projector of two layers that learns as well;
    - the cross-entropy of a source batch as large as x at its true labels.

    After the step the teacher follows. All passes normalize with the batch at hand. The answer is the sum of the
    student's and the teacher's logits, from before the step.

    Prototypes and warm-up are kept on disk under the hash of network, source and settings, and made when the first
    batch arrives, never in a constructor.

    **Departs from the paper:** the warm-up goes over a source smaller than ``warm_up_images`` once, and its order has
    a seed of its own, so that runs with different seeds share it; replayed images are drawn with replacement;
    prototypes are means over at most ``prototype_images``. ``source_free`` still needs the source once, for its
    prototypes.
    """

    title = "RMT"
    paper = "Robust mean teacher for continual and gradual test-time adaptation, CVPR 2023"
    needs_train_data = True
    adapts = "all parameters"
    forward_cost, backward_cost = 4, 6

    class Config(BatchStatsSettings):
        """Settings of RMT; the defaults are those for CIFAR-10-C, others for CIFAR-100-C and ImageNet-C."""

        learning_rate: PositiveFloat = 1e-3
        """Step size; 1e-3, 1e-3 with Adam, 0.01 with SGD."""
        optimizer: Literal["adam", "sgd"] = "adam"
        """``adam`` (betas 0.9 and 0.999) or, on ImageNet-C, ``sgd`` (momentum 0.9, Nesterov)."""
        teacher_momentum: float = Field(default=0.999, ge=0.0, le=1.0)
        """How much of itself the teacher keeps in a step."""
        agreement_weight: NonNegativeFloat = 1.0
        """Of the symmetric cross-entropy between teacher and student."""
        contrast_weight: NonNegativeFloat = 1.0
        """Of the contrastive loss."""
        source_weight: NonNegativeFloat = 1.0
        """Of the cross-entropy on replayed source images."""
        temperature: PositiveFloat = 0.1
        """T of the contrastive loss."""
        projector_size: PositiveInt = 128
        """What the projector's two layers give."""
        source_free: bool = False
        """No replay and no warm-up; the prototypes are all that is taken from the source."""
        warm_up_images: NonNegativeInt = 50_000
        """Source images of the warm-up; all of them, once, where there are fewer."""
        source_batch_size: PositiveInt = 200
        """Of the warm-up and the prototypes: the benchmark's own; 200, 200, 64."""
        prototype_images: PositiveInt = 100_000
        """Source images that prototypes are means of, at most: enough for a mean, and ImageNet is not read whole."""
        source_seed: int = 0
        """Drives which source images come, and in which order, in warm-up and prototypes."""

    prototypes: Tensor
    is_warm: Tensor

    def configure(self, model: nn.Module) -> None:
        """Turn on all gradients, and batch statistics."""
        require_grad_(model.parameters())
        use_batch_stats(model, self.config.share_of_source)

    def setup(self, train_data: Any) -> None:
        """Make teacher, projector and optimizer, and room for the prototypes; the source is not looked at yet."""
        self.train_data = TrainData.of(train_data)
        size = feature_size(self.model)
        like = next(self.model.parameters())
        self.teacher = make_teacher(self.model)
        self.projector = make_projector(size, self.config.projector_size, self.generator, like)
        learning = [*self.model.parameters(), *self.projector.parameters()]
        self.optimizer = make_optimizer(self.config.optimizer, learning, self.config.learning_rate)
        self.register_buffer("prototypes", like.new_zeros(self.train_data.num_classes, size))
        self.register_buffer("is_warm", torch.tensor(False, device=like.device))

    def update(self, images: Tensor, plan: Plan) -> StepOutput:
        """Answer with student and teacher, take one step, let the teacher follow."""
        if not self.is_warm:
            self.warm_up(images)
        with torch.no_grad():
            teacher_logits = self.teacher(images)
        logits, loss = self._losses(images, teacher_logits)
        loss.backward()
        if not self.config.source_free:  # gradients add up; on its own, so that the other graphs are gone by now
            originals, labels = self.train_data.draw(images, self.generator)
            (self.config.source_weight * F.cross_entropy(self.model(originals), labels)).backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        ema_update(self.teacher, self.model, self.config.teacher_momentum)
        return StepOutput(logits.detach() + teacher_logits)

    def forward_logits(self, images: Tensor) -> Tensor:
        """Return the sum of the student's and the teacher's logits; before the first step both are the source."""
        return self.model(images) + self.teacher(images)

    def warm_up(self, like: Tensor) -> None:
        """Take prototypes and warmed-up networks from the source, or from disk; the first step does this by itself.

        Args:
            like: images of the stream, whose shape, device and dtype source images are to have.
        """
        with torch.inference_mode(False), torch.enable_grad():
            self.prototypes.copy_(self._prototypes_of_source(like)["means"])
            if self.config.warm_up_images and not self.config.source_free:
                self._take_over(self._warmed_up(like))
            self.is_warm.fill_(True)

    def _losses(self, images: Tensor, teacher_logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the student's logits and the loss of a test batch."""
        logits, features = logits_and_features(self.model, images)
        augmented = augment(images, AugmentParams.from_generator(self.generator))
        augmented_logits, augmented_features = logits_and_features(self.model, augmented)
        own, other = (symmetric_cross_entropy(teacher_logits, each) for each in (logits, augmented_logits))
        nearby = self.prototypes[nearest_prototype(features.detach(), self.prototypes)]
        views = [self.projector(view) for view in (nearby, features, augmented_features)]
        contrast = contrastive_loss(views, self.config.temperature)
        agreement = 0.5 * own + 0.5 * other  # four cross-entropies, a quarter each
        return logits, self.config.agreement_weight * agreement + self.config.contrast_weight * contrast

    # --- what is made of the source, once ------------------------------------------------------------------------

    def _prototypes_of_source(self, like: Tensor) -> dict[str, Any]:
        settings = self.config.model_dump(include={"prototype_images", "source_batch_size", "source_seed"})

        def make() -> dict[str, Any]:
            batches = self._source_batches(self.config.prototype_images, like)
            return {"means": class_means(self.model, batches, self.train_data.num_classes)}

        return self._once("rmt-prototypes", settings, make, like)

    def _warmed_up(self, like: Tensor) -> dict[str, Any]:
        """Return student and teacher after the warm-up, and the optimizer's moments; its own networks stay."""
        config = self.config
        names = {"learning_rate", "optimizer", "teacher_momentum", "warm_up_images", "source_batch_size", "source_seed"}

        def make() -> dict[str, Any]:
            student, teacher = copy.deepcopy(self.model), copy.deepcopy(self.teacher)
            optimizer = make_optimizer(config.optimizer, student.parameters(), config.learning_rate)
            warm_up_teacher_student(
                student,
                teacher,
                optimizer,
                (images for images, _ in self._source_batches(config.warm_up_images, like)),
                steps=number_of_batches(min(config.warm_up_images, len(self.train_data)), config.source_batch_size),
                learning_rate=config.learning_rate,
                momentum=config.teacher_momentum,
            )
            moments = optimizer.state_dict()["state"]
            return {"student": student.state_dict(), "teacher": teacher.state_dict(), "moments": moments}

        return self._once("rmt-warm-up", config.model_dump(include=names), make, like)

    def _take_over(self, warmed: dict[str, Any]) -> None:
        self.model.load_state_dict(warmed["student"])
        self.teacher.load_state_dict(warmed["teacher"])
        # The student's parameters come first in the optimizer; the projector has not moved and has no moments yet.
        self.optimizer.load_state_dict(self.optimizer.state_dict() | {"state": warmed["moments"]})

    def _source_batches(self, most: int, like: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        return self.train_data.batches(most, self.config.source_batch_size, self.config.source_seed, like)

    def _once(
        self, what: str, settings: dict[str, Any], make: Callable[[], dict[str, Any]], like: Tensor
    ) -> dict[str, Any]:
        # The device is part of it: a CPU and a GPU do not round alike, and a run is to be repeatable to the bit.
        settings = settings | {"source_share": self.config.share_of_source}
        made_from = fingerprint(
            what, self.model, self.train_data.sha256, settings, like.device.type, self.execution_info()["precision"]
        )
        return cached(what, made_from, make, folder=self.train_data.cache)
