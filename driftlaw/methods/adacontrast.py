"""AdaContrast: nearest-neighbour pseudo-labels and contrastive learning (Chen et al., CVPR 2022), online."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor, nn

from driftlaw.base import Adapter, ExecutionSettings, Plan, StepOutput
from driftlaw.components.batch_norm import use_batch_stats
from driftlaw.components.contrastive import info_nce
from driftlaw.components.feature_bank import FeatureBank
from driftlaw.components.features import find_head, logits_and_features
from driftlaw.components.losses import negative_diversity
from driftlaw.components.optimizers import minimize_step
from driftlaw.components.parameters import require_grad_
from driftlaw.components.teacher import ema_update, make_teacher
from driftlaw.components.views import StrongAugmentParams, draw_flips, strong_view, weak_view
from driftlaw.execution.batch_statistics import batch_norm_layers


class AdaContrast(Adapter, name="adacontrast"):
    """AdaContrast minimises a sum of three losses on strong views of the batch.

        L = cross-entropy(query, pseudo-label) + InfoNCE(query, key; past keys) + Σ p̄·log p̄

    The pseudo-label of an image comes from its weak view, flipped or not. For the first images it is the arg-max of
    the prediction. Later it is the arg-max of the mean probabilities of its nearest neighbours, by cosine, in a
    bank of features that a momentum model makes of weak views. Query and key are two strong views of the same
    image, for the model and for the momentum model. Past keys with the same pseudo-label are not negatives. p̄ is the
    mean prediction for the queries. During training the model uses batch statistics and updates its running statistics.
    Logits are from after the update, with the running statistics.

    **Differences from the paper:** it runs online, one batch after the other, as in the continual benchmarks. There is
    no bottleneck layer: features are the input of the head. The banks start empty, not with random keys. Weak views are
    flipped, not cropped. Only norm layers are in train mode, so that dropout draws no random numbers of its own.
    """

    title = "AdaContrast"
    paper = "Contrastive test-time adaptation, CVPR 2022"
    predicts_before_update = False
    adapts = "all parameters, and running statistics"
    updates_running_stats = True
    classification_only = "AdaContrast compares features of whole images"
    forward_cost, backward_cost = 5, 2

    class Config(ExecutionSettings):
        """Settings of AdaContrast; the same for all three benchmarks."""

        learning_rate: PositiveFloat = 2e-4
        """Step size of SGD (momentum 0.9, Nesterov)."""
        weight_decay: NonNegativeFloat = 1e-4
        """Weight decay of SGD."""
        momentum: float = Field(default=0.999, ge=0.0, le=1.0)
        """Weight of the old momentum model in the moving average."""
        memory_size: PositiveInt = 16_384
        """Size of the bank of features, and of the queue of keys."""
        neighbours: PositiveInt = 10
        """Number of neighbours that decide a pseudo-label."""
        own_label_images: PositiveInt = 1_024
        """Number of first images that are labelled by their own arg-max."""
        temperature: PositiveFloat = 0.07
        """Temperature of InfoNCE."""
        classification_weight: NonNegativeFloat = 1.0
        """Weight of the cross-entropy."""
        contrast_weight: NonNegativeFloat = 1.0
        """Weight of InfoNCE."""
        diversity_weight: NonNegativeFloat = 1.0
        """Weight of Σ p̄·log p̄."""
        minimum_batch: PositiveInt = 1
        """With fewer images than this, the model predicts without updating. Predictions use running statistics."""

    def configure(self, model: nn.Module) -> None:
        """Adapt all parameters; the mode of norm layers changes from pass to pass."""
        find_head(model)  # raises if the model has no linear head
        require_grad_(model.parameters())

    def setup(self, train_data: Any) -> None:
        """Create the momentum model, the bank of features, the queue of keys and the optimizer."""
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

    def draw(self, images: Tensor) -> Plan:
        """Draw the flips of the weak view and the parameters of two strong views."""
        flips = draw_flips(len(images), self.generator)
        strong = [StrongAugmentParams.from_generator(len(images), self.generator) for _ in range(2)]
        return Plan(host=(flips, strong))

    def update(self, images: Tensor, plan: Plan) -> StepOutput:
        """Train on views of the batch, then predict it."""
        flips, strong = plan.host
        weak = weak_view(images, flips)
        query, key = (strong_view(images, each) for each in strong)
        with torch.no_grad():
            _, keys = logits_and_features(self.momentum_model, key)
        with self._updating_running_stats():
            labels = self._pseudo_labels(weak)
            loss = self._loss(query, keys, labels)
        minimize_step(loss, self.optimizer)
        with torch.no_grad():
            logits, features = logits_and_features(self.momentum_model, weak)
            self.bank.store(features=features, probabilities=logits.softmax(dim=1))
            self.queue.store(features=keys, labels=labels)
            ema_update(self.momentum_model, self.model, self.config.momentum)
            return StepOutput(self.model(images))

    @contextmanager
    def _updating_running_stats(self) -> Iterator[None]:
        """Context manager in which BatchNorm layers use batch statistics and update their running statistics."""
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
        logits, features = logits_and_features(self.model, weak)
        neighbours = self.bank.knn_predict(features, self.config.neighbours).argmax(dim=1)
        first_images = self.bank.stored < self.config.own_label_images
        return torch.where(first_images, logits.argmax(dim=1), neighbours)

    def _loss(self, query: Tensor, keys: Tensor, labels: Tensor) -> Tensor:
        logits, features = logits_and_features(self.model, query)
        negatives = self.queue.filled() & (labels.unsqueeze(1) != self.queue.labels)
        contrast = info_nce(features, keys, self.queue.similarities(features), negatives, self.config.temperature)
        loss: Tensor = (
            self.config.classification_weight * F.cross_entropy(logits, labels)
            + self.config.contrast_weight * contrast
            + self.config.diversity_weight * negative_diversity(logits)
        )
        return loss
