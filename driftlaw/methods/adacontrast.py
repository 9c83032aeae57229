"""AdaContrast: pseudo-labels voted by neighbours, and contrastive learning (Chen et al., CVPR 2022), online."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor, nn

from driftlaw.base import Adapter, ExecutionSettings, Plan, StepOutput
from driftlaw.components.batch_norm import batch_norm_layers, use_batch_stats
from driftlaw.components.contrastive import info_nce
from driftlaw.components.feature_bank import FeatureBank
from driftlaw.components.features import find_head, logits_and_features
from driftlaw.components.losses import negative_diversity
from driftlaw.components.optimizers import minimize_step
from driftlaw.components.parameters import require_grad_
from driftlaw.components.teacher import ema_update, make_teacher
from driftlaw.components.views import StrongAugmentParams, draw_flips, strong_view, weak_view


class AdaContrast(Adapter, name="adacontrast"):
    """Minimises a sum of three losses on strong views of the batch; every parameter moves, running statistics too.

    A weak view (flipped or not) is answered. Its pseudo-label is its arg-max for the first images of a stream, later
    the arg-max of the mean probabilities of its nearest neighbours, by cosine, in a bank of features that a slowly
    following momentum model made of weak views. Two strong views of the same images follow, one for the model
    (the query) and one for the momentum model (the key). Then one step down

        L = cross-entropy(query's answer, pseudo-label) + InfoNCE(query, key; keys of past images) + Σ p̄·log p̄

    where keys of the same pseudo-label are no negatives, and p̄ is the mean answer to the queries. While it learns the
    model normalises with the batch and keeps its running statistics going; the answer is a last pass, after the step,
    with those statistics.

    **Departs from the paper:** online, one batch after the other, as the continual benchmarks run it. There is no
    bottleneck layer: features are what the head is given. The banks start empty, not with random keys. Weak views are
    flipped, not cropped. Norm layers alone are in train mode, so that dropout draws no randomness of its own.
    """

    title = "AdaContrast"
    paper = "Contrastive test-time adaptation, CVPR 2022"
    predicts_before_update = False
    adapts = "all parameters, and running statistics"
    updates_running_stats = True
    forward_cost, backward_cost = 5, 2

    class Config(ExecutionSettings):
        """Settings of AdaContrast; the defaults serve all three benchmarks."""

        learning_rate: PositiveFloat = 2e-4
        """Step size of SGD (momentum 0.9, Nesterov)."""
        weight_decay: NonNegativeFloat = 1e-4
        """Of SGD."""
        momentum: float = Field(default=0.999, ge=0.0, le=1.0)
        """What the momentum model keeps of itself from batch to batch."""
        memory_size: PositiveInt = 16_384
        """How many features the bank of neighbours remembers, and how many keys the queue of negatives."""
        neighbours: PositiveInt = 10
        """How many vote on a pseudo-label."""
        own_label_images: PositiveInt = 1_024
        """How many images of a stream are labelled by their own arg-max before neighbours vote."""
        temperature: PositiveFloat = 0.07
        """T of InfoNCE."""
        classification_weight: NonNegativeFloat = 1.0
        """Weight of the cross-entropy."""
        contrast_weight: NonNegativeFloat = 1.0
        """Weight of InfoNCE."""
        diversity_weight: NonNegativeFloat = 1.0
        """Weight of Σ p̄·log p̄."""
        minimum_batch: PositiveInt = 1
        """Of fewer images than this it answers and does not learn; its answers never need the statistics of a batch."""

    def configure(self, model: nn.Module) -> None:
        """Turn on all gradients; the modes change from pass to pass."""
        find_head(model)  # refuses, with a reason, a network of which nobody knows the features
        require_grad_(model.parameters())

    def setup(self, train_data: Any) -> None:
        """Make the momentum model, the bank of neighbours, the queue of keys and the optimizer."""
        head = find_head(self.model)
        self.momentum_model = make_teacher(self.model)
        use_batch_stats(self.momentum_model)
        features = head.weight.new_zeros(head.in_features)
        probabilities = head.weight.new_zeros(head.out_features)
        label = torch.zeros((), dtype=torch.int64, device=head.weight.device)
        self.bank = FeatureBank(self.config.memory_size, features=features, probabilities=probabilities)
        self.queue = FeatureBank(self.config.memory_size, features=features, labels=label)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(),
            lr=self.config.learning_rate,
            momentum=0.9,
            nesterov=True,
            weight_decay=self.config.weight_decay,
        )

    def update(self, images: Tensor, plan: Plan) -> StepOutput:
        """Learn from views of the batch, then answer it."""
        weak = weak_view(images, draw_flips(len(images), self.generator))
        query, key = (
            strong_view(images, StrongAugmentParams.from_generator(len(images), self.generator)) for _ in range(2)
        )
        with torch.no_grad():
            _, keys = logits_and_features(self.momentum_model, key)
        with self._tracking_statistics():
            labels = self._pseudo_labels(weak)
            loss = self._loss(query, keys, labels)
        minimize_step(loss, self.optimizer)
        self._remember(weak, keys, labels)
        ema_update(self.momentum_model, self.model, self.config.momentum)
        with torch.no_grad():
            return StepOutput(self.model(images))

    @contextmanager
    def _tracking_statistics(self) -> Iterator[None]:
        """Inside, BatchNorm layers normalize with the batch and their running statistics follow it."""
        layers = batch_norm_layers(self.model)
        for layer in layers:
            layer.train()
        try:
            yield
        finally:
            for layer in layers:
                layer.eval()

    @torch.no_grad()
    def _pseudo_labels(self, weak: Tensor) -> Tensor:
        """Return (n,), the arg-max of the answers while the stream is young, then that of the neighbours' votes."""
        logits, features = logits_and_features(self.model, weak)
        voted = self.bank.knn_predict(features, self.config.neighbours).argmax(dim=1)
        young = self.bank.stored < self.config.own_label_images  # on the device: nobody waits for it
        return torch.where(young, logits.argmax(dim=1), voted)

    def _loss(self, query: Tensor, keys: Tensor, labels: Tensor) -> Tensor:
        logits, features = logits_and_features(self.model, query)
        counts = self.queue.filled() & (labels.unsqueeze(1) != self.queue.labels)
        contrast = info_nce(features, keys, self.queue.similarities(features), counts, self.config.temperature)
        return (
            self.config.classification_weight * F.cross_entropy(logits, labels)
            + self.config.contrast_weight * contrast
            + self.config.diversity_weight * negative_diversity(logits)
        )

    @torch.no_grad()
    def _remember(self, weak: Tensor, keys: Tensor, labels: Tensor) -> None:
        logits, features = logits_and_features(self.momentum_model, weak)
        self.bank.store(features=features, probabilities=logits.softmax(dim=1))
        self.queue.store(features=keys, labels=labels)
