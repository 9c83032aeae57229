"""EATA and ETA (Niu et al., ICML 2022), and RDumb (Press et al., NeurIPS 2023): entropy of selected images."""

import math
from typing import Any, Literal

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from driftlaw.base import Adapter, BatchStatsSettings, Plan, StepOutput
from driftlaw.base.model_copy import num_classes
from driftlaw.components.batch_norm import use_batch_stats
from driftlaw.components.features import find_head
from driftlaw.components.fisher import score
from driftlaw.components.losses import entropy
from driftlaw.components.optimizers import make_optimizer, step_if
from driftlaw.components.parameters import adapt_layers
from driftlaw.components.sample_weights import masked_mean, select_reliable
from driftlaw.components.train_data import TrainData
from driftlaw.settings import Seed


class Eta(Adapter, name="eta"):
    """ETA minimises the entropy of images that are reliable and not redundant, over the norm layers.

    p are the predicted probabilities of an image and H its entropy, m is the running mean of p over kept images.

        (1)  kept: H < E₀ and |cos(m, p)| < ε           E₀ = 0.4·ln K; the second holds for all while m is unset
        (2)  m ← 0.9·m + 0.1·mean p over kept images     first value: the mean
        (3)  L = mean over kept images of exp(E₀ − H)·H  no gradient through the factor

    There is one step per batch over the scale and shift of norm layers, and none if no image is kept. BatchNorm layers
    use batch statistics. Logits are from before the update.

    **Differences from the paper:** SGD has Nesterov momentum, as in the continual benchmarks. If no image is kept,
    moments do not change either. ``reset`` clears m, which the released code does not.
    """

    title = "ETA"
    paper = "Efficient test-time model adaptation without forgetting, ICML 2022"
    adapts = "scale and shift of norm layers"
    forward_cost, backward_cost = 1, 1

    class Config(BatchStatsSettings):
        """Settings of ETA; the defaults are those for CIFAR-10-C. Texts list CIFAR-10-C, CIFAR-100-C, ImageNet-C."""

        learning_rate: PositiveFloat = 1e-3
        """Step size: 1e-3, 1e-3 with Adam, 2.5e-4 with SGD."""
        optimizer: Literal["adam", "sgd"] = "adam"
        """``adam`` (betas 0.9 and 0.999) or, on ImageNet-C, ``sgd`` (momentum 0.9, Nesterov)."""
        entropy_threshold: PositiveFloat = 0.4
        """E₀ divided by ln K, the highest possible entropy."""
        similarity_threshold: PositiveFloat = 0.4
        """ε, the maximum cosine similarity with the running mean: 0.4, 0.1, 0.05."""
        probability_momentum: float = Field(default=0.9, ge=0.0, le=1.0)
        """Weight of the old value in the running mean of predicted probabilities."""

    mean_probabilities: Tensor

    def configure(self, model: nn.Module) -> None:
        """Adapt norm layers, with batch statistics."""
        adapt_layers(model, ["norm"])
        use_batch_stats(model, self.config.stored_stats_weight)

    def setup(self, train_data: Any) -> None:
        """Create the optimizer and the running mean of probabilities, 0 until an image is kept."""
        self.optimizer = make_optimizer(self.config.optimizer, self.trainable_parameters(), self.config.learning_rate)
        classes = num_classes(self.model) or find_head(self.model).out_features
        self.add_state("mean_probabilities", self.trainable_parameters()[0].new_zeros(classes), reduce="mean")

    def penalty(self) -> Tensor | float:
        """Return what is added to the loss."""
        return 0.0

    def update(self, images: Tensor, plan: Plan) -> StepOutput:
        """Predict, and take one step on the entropy of the kept images."""
        config, logits = self.config, self.model(images)
        threshold = config.entropy_threshold * math.log(logits.shape[1])
        kept = select_reliable(
            logits, self.mean_probabilities, threshold, config.similarity_threshold, config.probability_momentum
        )
        entropies = entropy(logits, reduction="none")
        loss = masked_mean((threshold - entropies.detach()).exp() * entropies, kept) + self.penalty()
        loss.backward()
        step_if(kept.any(), self.optimizer)
        return StepOutput(logits.detach(), {"kept": kept.float().mean()})


class Eata(Eta, name="eata"):
    """EATA is ETA with a penalty on changes of parameters that matter for the training data.

    With the loss L of ETA, learnt scalars θ and their source values θ₀:

        (4)  F = mean over batches of (∂ NLL / ∂θ)²     2,000 training images, NLL of the predicted labels
        (5)  L + β·Σ F·(θ − θ₀)²

    F is computed before the first step, with batch statistics. ETA alone needs no training data.

    **Differences from the paper:** those of ETA. F is computed on training images, where the paper uses validation
    images of ImageNet.
    """

    title = "EATA"
    paper = "Efficient test-time model adaptation without forgetting, ICML 2022"
    needs_train_data = True

    class Config(Eta.Config):
        """Settings of EATA; the defaults are those for CIFAR-10-C. Texts list CIFAR-10-C, CIFAR-100-C, ImageNet-C."""

        fisher_weight: NonNegativeFloat = 1.0
        """β: 1, 1, 2000."""
        fisher_images: PositiveInt = 2_000
        """Number of training images for F."""
        fisher_batch_size: PositiveInt = 64
        """Batch size of the training images."""
        source_seed: Seed = 0
        """Seed of the choice of training images."""

    fisher: Tensor
    source: Tensor

    def setup(self, train_data: Any) -> None:
        """Create the state of ETA, the source values and an empty F; the training data is not read yet."""
        super().setup(train_data)
        self.train_data = TrainData.of(train_data)
        source = parameters_to_vector(self.trainable_parameters()).detach()
        self.add_state("source", source)
        self.add_state("fisher", torch.zeros_like(source))

    def draw(self, images: Tensor) -> Plan:
        """Compute F before the first step."""
        if self.steps == 0:
            config = self.config
            squares = [
                torch.cat([value.flatten() for value in score(self.model(batch), self.trainable_parameters())]).square()
                for batch, _ in self.train_data.batches(
                    config.fisher_images, config.fisher_batch_size, config.source_seed, images
                )
            ]
            self.fisher.copy_(torch.stack(squares).mean(dim=0))
        return Plan()

    def penalty(self) -> Tensor:
        """Return β·Σ F·(θ − θ₀)²."""
        change = parameters_to_vector(self.trainable_parameters()) - self.source
        weighted: Tensor = self.config.fisher_weight * (self.fisher * change.square()).sum()
        return weighted


class RDumb(Eta, name="rdumb"):
    """RDumb is ETA with a reset to the source model after a fixed number of steps.

    Parameters, moments and the running mean of probabilities return to their first values, whatever the images show.

    **Differences from the paper:** those of ETA. The hub repository of the field uses ε = 0.4 on CIFAR-100-C, where
    ETA has 0.1; the preset has 0.1.
    """

    title = "RDumb"
    paper = "RDumb: a simple approach that questions our progress in continual test-time adaptation, NeurIPS 2023"

    class Config(Eta.Config):
        """Settings of RDumb; the defaults are those for CIFAR-10-C."""

        reset_every: PositiveInt = 1_000
        """Number of steps between resets."""

    def setup(self, train_data: Any) -> None:
        """Create the state of ETA and a copy of the source parameters."""
        super().setup(train_data)
        self.add_parameter_state("source")
        torch._foreach_copy_(self.parameter_state("source"), [value.detach() for value in self.trainable_parameters()])

    def draw(self, images: Tensor) -> Plan:
        """Decide whether this step starts with a reset."""
        return Plan("reset" if self.steps and self.steps % self.config.reset_every == 0 else "step")

    def update(self, images: Tensor, plan: Plan) -> StepOutput:
        """Return to the source model if it is time to, then take the step of ETA."""
        if plan.kind == "reset":
            moments = [value for state in self.optimizer.state.values() for value in state.values()]
            torch._foreach_zero_([*moments, self.mean_probabilities])
            parameters: list[Tensor] = [*self.trainable_parameters()]
            with torch.no_grad():
                torch._foreach_copy_(parameters, self.parameter_state("source"))
        return super().update(images, plan)
