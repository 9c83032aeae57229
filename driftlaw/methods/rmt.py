"""RMT: robust mean teacher with class prototypes and replay (Döbler, Marsden and Yang, CVPR 2023)."""

import copy
from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor, nn

from driftlaw.base import Adapter, BatchStatsSettings, Plan, StepOutput
from driftlaw.components.augment import AugmentParams, augment
from driftlaw.components.batch_norm import use_batch_stats
from driftlaw.components.cache import fingerprint
from driftlaw.components.contrastive import contrastive_loss, make_projector
from driftlaw.components.features import class_means, find_head, logits_and_features, nearest_prototype
from driftlaw.components.losses import symmetric_cross_entropy
from driftlaw.components.optimizers import make_optimizer
from driftlaw.components.parameters import require_grad_
from driftlaw.components.teacher import ema_update, make_teacher, warm_up_teacher_student
from driftlaw.components.train_data import TrainData, number_of_batches
from driftlaw.execution.split_pass import split_passes
from driftlaw.settings import Seed
from driftlaw.torch_files import cached


class Rmt(Adapter, name="rmt"):
    """RMT minimises disagreement with a mean teacher, a contrastive loss to class prototypes, and the source loss.

    Before its first step the method uses the training data twice. The mean penultimate features of every class are the
    prototypes. Then student and teacher are warmed up on training images with the symmetric cross-entropy between them,
    at a linearly rising rate. A batch x and its augmented copy x̃ give three losses:

    - the symmetric cross-entropy of the teacher's prediction for x with the student's for x and for x̃, half of each;
    - a contrastive loss that pulls together, for each image, its features, those of its copy and the nearest prototype,
      all through a trained projector of two layers;
    - the cross-entropy of a training batch of the same size at its true labels.

    After the step the teacher is updated by an exponential moving average. All passes use batch statistics. Logits are
    the sum of the student's and the teacher's, from before the update.

    Prototypes and warm-up are cached on disk under the hash of model, training data and settings. They are made at the
    first batch.

    **Differences from the paper:** training data smaller than ``warm_up_images`` is used once in the warm-up. The order
    of the warm-up has its own seed, so that runs with different seeds share it. Replayed training images are drawn with
    replacement. Prototypes are means over at most ``prototype_images``. ``source_free`` still needs the training data
    once, for the prototypes.
    """

    title = "RMT"
    paper = "Robust mean teacher for continual and gradual test-time adaptation, CVPR 2023"
    needs_train_data = True
    adapts = "all parameters"
    classification_only = "RMT compares features of whole images with class prototypes"
    forward_cost, backward_cost = 4, 6

    class Config(BatchStatsSettings):
        """Settings of RMT; the defaults are those for CIFAR-10-C. Texts list CIFAR-10-C, CIFAR-100-C, ImageNet-C."""

        learning_rate: PositiveFloat = 1e-3
        """Step size: 1e-3, 1e-3 with Adam, 0.01 with SGD."""
        optimizer: Literal["adam", "sgd"] = "adam"
        """``adam`` (betas 0.9 and 0.999) or, on ImageNet-C, ``sgd`` (momentum 0.9, Nesterov)."""
        teacher_momentum: float = Field(default=0.999, ge=0.0, le=1.0)
        """Weight of the old teacher in the moving average."""
        agreement_weight: NonNegativeFloat = 1.0
        """Weight of the symmetric cross-entropy between teacher and student."""
        contrast_weight: NonNegativeFloat = 1.0
        """Weight of the contrastive loss."""
        source_weight: NonNegativeFloat = 1.0
        """Weight of the cross-entropy on training images."""
        temperature: PositiveFloat = 0.1
        """Temperature of the contrastive loss."""
        projector_size: PositiveInt = 128
        """Output size of both layers of the projector."""
        source_free: bool = False
        """No replay and no warm-up; only the prototypes use training data."""
        warm_up_images: NonNegativeInt = 50_000
        """Number of training images of the warm-up; all of them, once, if there are fewer."""
        source_batch_size: PositiveInt = 200
        """Batch size of warm-up and prototypes, as the benchmark's: 200, 200, 64."""
        prototype_images: PositiveInt = 100_000
        """Maximum number of training images for the prototypes: enough for a mean, and less than all of ImageNet."""
        source_seed: Seed = 0
        """Seed of the choice and order of training images in warm-up and prototypes."""

    prototypes: Tensor
    is_warm: Tensor

    def configure(self, model: nn.Module) -> None:
        """Adapt all parameters, with batch statistics."""
        require_grad_(model.parameters())
        use_batch_stats(model, self.config.stored_stats_weight)

    def setup(self, train_data: Any) -> None:
        """Create teacher, projector, optimizer and empty prototypes; the training data is not read yet."""
        self.train_data = TrainData.of(train_data)
        size = find_head(self.model).in_features
        like = next(self.model.parameters())
        self.teacher = make_teacher(self.model)
        self.projector = make_projector(size, self.config.projector_size, self.generator, like)
        trained = [*self.model.parameters(), *self.projector.parameters()]
        self.optimizer = make_optimizer(self.config.optimizer, trained, self.config.learning_rate)
        self.add_state("prototypes", like.new_zeros(self.train_data.num_classes, size))
        self.add_state("is_warm", torch.tensor(False, device=like.device))

    def draw(self, images: Tensor) -> Plan:
        """Warm up before the first step; draw the augmentation and a batch of training data."""
        if not self.is_warm:
            self.warm_up(images)
        second = AugmentParams.from_generator(self.generator)
        replay = None if self.config.source_free else self.train_data.draw(images, self.generator)
        return Plan(host=(second, replay))

    def update(self, images: Tensor, plan: Plan) -> StepOutput:
        """Predict with student and teacher, take one step, update the teacher."""
        second, replay = plan.host
        with torch.no_grad():
            teacher_logits = self.teacher(images)
        logits, loss = self._losses(images, augment(images, second), teacher_logits)
        loss.backward()
        if replay is not None:  # separate, so that the tensors of the other losses are free by now; gradients add up
            originals, labels = replay
            (self.config.source_weight * F.cross_entropy(self.model(originals), labels)).backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        ema_update(self.teacher, self.model, self.config.teacher_momentum)
        return StepOutput(logits.detach() + teacher_logits)

    def forward_logits(self, images: Tensor) -> Tensor:
        """Return the sum of the student's and the teacher's logits; before the first step both are the source model."""
        logits: Tensor = self.model(images) + self.teacher(images)
        return logits

    def warm_up(self, like: Tensor) -> None:
        """Compute prototypes and warm up both networks, or read the results from disk. The first step calls this.

        Args:
            like: images whose shape, device and dtype the training images get.
        """
        with torch.inference_mode(False), torch.enable_grad():
            self.prototypes.copy_(self._make_prototypes(like)["means"])
            if self.config.warm_up_images and not self.config.source_free:
                warm = self._make_warm_networks(like)
                self.model.load_state_dict(warm["student"])
                self.teacher.load_state_dict(warm["teacher"])
                # The student's parameters come first in the optimizer; the projector has no moments yet.
                self.optimizer.load_state_dict(self.optimizer.state_dict() | {"state": warm["moments"]})
            self.is_warm.fill_(True)

    def _losses(self, images: Tensor, augmented: Tensor, teacher_logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the student's logits and the loss of a test batch."""
        logits, features = logits_and_features(self.model, images)
        augmented_logits, augmented_features = logits_and_features(self.model, augmented)
        first, second = (symmetric_cross_entropy(teacher_logits, each) for each in (logits, augmented_logits))
        prototypes = self.prototypes[nearest_prototype(features.detach(), self.prototypes)]
        views = [self.projector(view) for view in (prototypes, features, augmented_features)]
        contrast = contrastive_loss(views, self.config.temperature)
        agreement = 0.5 * first + 0.5 * second  # four cross-entropies, a quarter each
        return logits, self.config.agreement_weight * agreement + self.config.contrast_weight * contrast

    def _make_prototypes(self, like: Tensor) -> dict[str, Any]:
        config = self.config

        def make() -> dict[str, Any]:
            batches = self.train_data.batches(
                config.prototype_images, config.source_batch_size, config.source_seed, like
            )
            return {"means": class_means(self.model, batches, self.train_data.num_classes)}

        return self._cached("rmt-prototypes", {"prototype_images", "source_batch_size", "source_seed"}, make, like)

    def _make_warm_networks(self, like: Tensor) -> dict[str, Any]:
        """Return student, teacher and optimizer moments after the warm-up; the method's own networks do not change."""
        config = self.config
        names = {"learning_rate", "optimizer", "teacher_momentum", "warm_up_images", "source_batch_size", "source_seed"}

        def make() -> dict[str, Any]:
            student, teacher = copy.deepcopy(self.model), copy.deepcopy(self.teacher)
            optimizer = make_optimizer(config.optimizer, student.parameters(), config.learning_rate)
            batches = self.train_data.batches(config.warm_up_images, config.source_batch_size, config.source_seed, like)
            warm_up_teacher_student(
                student,
                teacher,
                optimizer,
                (images for images, _ in batches),
                steps=number_of_batches(min(config.warm_up_images, len(self.train_data)), config.source_batch_size),
                learning_rate=config.learning_rate,
                momentum=config.teacher_momentum,
            )
            moments = optimizer.state_dict()["state"]
            return {"student": student.state_dict(), "teacher": teacher.state_dict(), "moments": moments}

        return self._cached("rmt-warm-up", names, make, like)

    def _cached(
        self, name: str, settings: set[str], make: Callable[[], dict[str, Any]], like: Tensor
    ) -> dict[str, Any]:
        # The device is part of the key: CPU and GPU round differently, and a run must be repeatable bit for bit.
        values = self.config.model_dump(include=settings) | {"source_share": self.config.stored_stats_weight}
        precision = self.execution_info()["precision"]
        key = fingerprint(name, self.model, self.train_data.sha256, values, like.device.type, precision)
        with split_passes(None):  # a process that finds the file does not compute
            return cached(name, key, make, folder=self.train_data.cache)
