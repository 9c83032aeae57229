"""RoTTA: robust statistics, a class-balanced memory and a slow teacher (Yuan, Xie and Li, CVPR 2023)."""

from typing import Any, NamedTuple

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor, nn

from driftlaw.base import Adapter, ExecutionSettings, Plan, StepOutput
from driftlaw.components.augment import AugmentParams, augment
from driftlaw.components.losses import entropy, soft_cross_entropy
from driftlaw.components.memory import ClassBalancedMemory, MemorySlots
from driftlaw.components.optimizers import make_optimizer, minimize_step
from driftlaw.components.parameters import adapt_layers
from driftlaw.components.robust_batch_norm import robust_batch_stats
from driftlaw.components.teacher import ema_update, make_teacher


class Drawn(NamedTuple):
    """Host values of a step.

    ``pool`` has the images of the memory and of the batch, ``logits`` are the teacher's. An update has indices in the
    pool, the ages of these images, and an augmentation. ``slots`` is the memory after the batch.
    """

    pool: Tensor
    logits: Tensor
    updates: list[tuple[list[int], list[int], AugmentParams]]
    slots: MemorySlots


class Rotta(Adapter, name="rotta"):
    """RoTTA (Yuan, Xie and Li, CVPR 2023): a student learns from its slow teacher on a class-balanced memory.

    The teacher predicts every batch with its stored statistics, and every image is offered to a memory of M slots with
    the predicted class and the entropy H. Recent images with low entropy stay; no class gets more than its share. After
    every M-th image, with images x of the memory and their ages a:

        (1)  μ ← (1 − r)·μ + r·μ(x), σ² likewise      BatchNorm of the teacher, on x
        (2)  the same for the student, on aug(x)
        (3)  L = mean of e^(−a/M)/(1 + e^(−a/M)) · CE(teacher(x), student(aug(x)))
        (4)  Adam step of scale and shift of the student's norm layers
        (5)  teacher ← (1 − ν)·teacher + ν·student

    A prediction does not depend on the other images of its batch, so that batches of one image work, and statistics
    follow the memory and not the order of labels. A batch contains no, one or several updates. Logits are the
    teacher's, from before the first of them.

    **Differences from the paper:** the memory is decided on the host for a whole batch at once, which waits for a GPU
    once per batch. Scale and shift of LayerNorm and GroupNorm are adapted too; the released code has BatchNorm only.
    """

    title = "RoTTA"
    paper = "Robust test-time adaptation in dynamic scenarios, CVPR 2023"
    adapts = "scale and shift of norm layers, BatchNorm statistics"
    updates_running_stats = True
    classification_only = "RoTTA keeps images by the class that is predicted for each of them"
    forward_cost, backward_cost = 3, 1
    seen: Tensor

    class Config(ExecutionSettings):
        """Settings of RoTTA; one set for CIFAR-10-C, CIFAR-100-C and ImageNet-C."""

        learning_rate: PositiveFloat = 1e-3
        """Step size of Adam."""
        memory_size: PositiveInt = 64
        """M, number of images in the memory."""
        update_every: PositiveInt = 64
        """Number of images between updates; equal to the size of the memory in the paper."""
        statistics_rate: float = Field(default=0.05, ge=0.0, le=1.0)
        """r of (1), the share of the memory's statistics."""
        teacher_momentum: float = Field(default=0.999, ge=0.0, le=1.0)
        """1 − ν of (5), weight of the old teacher."""

    def configure(self, model: nn.Module) -> None:
        """Adapt norm layers."""
        adapt_layers(model, ["norm"])

    def setup(self, train_data: Any) -> None:
        """Create teacher, memory and optimizer."""
        parameters = self.trainable_parameters()
        self.teacher = make_teacher(self.model)
        self.memory = ClassBalancedMemory(self.config.memory_size, parameters[0].detach())
        self.optimizer = make_optimizer("adam", parameters, self.config.learning_rate)
        self.add_state("seen", torch.zeros((), dtype=torch.int64, device=parameters[0].device))

    def draw(self, images: Tensor) -> Plan:
        """Predict with the teacher, offer the images to the memory, and draw an augmentation for every update."""
        pool, logits = self.memory.pool(images), self.inference(self.teacher, images)
        pseudo_labels, entropies = logits.argmax(dim=1), entropy(logits, reduction="none")
        slots, (labels, uncertainties, (seen,)) = self.memory.read(pseudo_labels, entropies, self.seen)
        updates = []
        for index, (label, uncertainty) in enumerate(zip(labels, uncertainties, strict=True)):
            slots.offer(int(label), uncertainty, index, logits.shape[1])
            if (seen + index + 1) % self.config.update_every == 0:
                filled = slots.filled()
                sources, ages = [slots.sources[slot] for slot in filled], [slots.ages[slot] for slot in filled]
                updates.append((sources, ages, AugmentParams.from_generator(self.generator)))
        return Plan(host=Drawn(pool, logits, updates, slots))

    def update(self, images: Tensor, plan: Plan) -> StepOutput:
        """Train the student on the memory at every update of this batch, and store the new memory."""
        drawn: Drawn = plan.host
        pool, rate = drawn.pool, self.config.statistics_rate
        for sources, ages, augmentation in drawn.updates:
            batch = pool[torch.tensor(sources, device=pool.device)]
            weights = torch.sigmoid(-pool.new_tensor(ages) / self.config.memory_size)
            with torch.no_grad(), robust_batch_stats(self.teacher, rate):
                target = self.teacher(batch)  # (1)
            with robust_batch_stats(self.model, rate):
                predicted = self.model(augment(batch, augmentation))  # (2)
                loss = (weights * soft_cross_entropy(target, predicted, reduction="none")).mean()  # (3)
                minimize_step(loss, self.optimizer)  # (4)
            ema_update(self.teacher, self.model, self.config.teacher_momentum)  # (5)
        self.memory.write(drawn.slots, pool)
        self.seen.add_(len(images))
        return StepOutput(drawn.logits, {"updates": len(drawn.updates), "memory": len(drawn.slots.filled())})

    def forward_logits(self, images: Tensor) -> Tensor:
        """Return the teacher's logits."""
        logits: Tensor = self.teacher(images)
        return logits
