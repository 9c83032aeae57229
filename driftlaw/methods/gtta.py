"""GTTA-MIX: gradual test-time adaptation through mixed images (Marsden, Döbler and Yang, arXiv:2208.07736, 2022)."""

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
    """GTTA-MIX trains on training images mixed with test images, then on confident pseudo-labels.

    A pseudo-label is kept if its confidence reaches √c, where c is the running mean confidence of all batches so far.
    Each image of a training batch is mixed with the test image whose predicted probabilities are most similar to its
    own (largest inner product), x = ⅓·test + ⅔·training: domains between training and test. One step minimises the
    cross-entropy at their true labels, a second one that at the kept pseudo-labels of the test batch. The network uses
    batch statistics. Logits are those of the test batch between the two updates.

    **Differences from the paper:** a batch without kept pseudo-labels takes no second step: the mean over no label
    would be NaN and Adam would move on its moments alone. This decision waits for a GPU once per step. Training images
    are drawn with replacement. Of the paper's two ways to create intermediate domains, mixing and style transfer, this
    is the first.
    """

    title = "GTTA-MIX"
    paper = "Introducing intermediate domains for effective self-training during test-time, arXiv:2208.07736"
    predicts_before_update = False
    needs_train_data = True
    adapts = "all parameters"
    classification_only = "GTTA-MIX trains on images with one label each"
    forward_cost, backward_cost = 4, 4

    class Config(BatchStatsSettings):
        """Settings of GTTA-MIX; one set for CIFAR-10-C, CIFAR-100-C and ImageNet-C."""

        learning_rate: PositiveFloat = 1e-5
        """Step size of both steps."""
        optimizer: Literal["adam", "sgd"] = "adam"
        """``adam`` (betas 0.9 and 0.999) or ``sgd`` (momentum 0.9, Nesterov)."""
        test_share: float = Field(default=1 / 3, ge=0.0, le=1.0)
        """λ, the share of the test image in a mixed image."""
        confidence_momentum: float = Field(default=0.9, ge=0.0, le=1.0)
        """Weight of the old value in the running mean confidence."""
        first_confidence: float = Field(default=0.9, ge=0.0, le=1.0)
        """Initial value of the running mean confidence."""

    confidence: Tensor

    def configure(self, model: nn.Module) -> None:
        """Adapt all parameters, with batch statistics."""
        require_grad_(model.parameters())
        use_batch_stats(model, self.config.stored_stats_weight)

    def setup(self, train_data: Any) -> None:
        """Create the optimizer and the running mean confidence."""
        self.train_data = TrainData.of(train_data)
        self.optimizer = make_optimizer(self.config.optimizer, self.model.parameters(), self.config.learning_rate)
        like = next(self.model.parameters())
        start = torch.tensor(self.config.first_confidence, dtype=like.dtype, device=like.device)
        self.add_state("confidence", start, reduce="mean")

    def draw(self, images: Tensor) -> Plan:
        """Draw a batch of training images."""
        return Plan(host=self.train_data.draw(images, self.generator))

    def update(self, images: Tensor, plan: Plan) -> StepOutput:
        """Train on mixed images, predict, then train on the kept pseudo-labels."""
        originals, labels = plan.host
        with torch.no_grad():
            probabilities = self.model(images).softmax(dim=1)
            confidences, pseudo_labels = probabilities.max(dim=1)
            self.confidence.lerp_(confidences.mean(), 1 - self.config.confidence_momentum)
            kept = confidences >= self.confidence.sqrt()
            partner = most_similar(self.model(originals).softmax(dim=1), probabilities)
            mixed = torch.lerp(originals, images[partner], self.config.test_share)
        minimize_step(F.cross_entropy(self.model(mixed), labels), self.optimizer)
        logits = self.model(images)
        if kept.any():
            minimize_step(F.cross_entropy(logits[kept], pseudo_labels[kept]), self.optimizer)
        diagnostics = {"kept": kept.to(logits.dtype).mean(), "confidence": self.confidence.clone()}
        return StepOutput(logits.detach(), diagnostics)
