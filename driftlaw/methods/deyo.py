"""DeYO: entropy minimisation on images whose prediction depends on their shape (Lee et al., ICLR 2024)."""

import math
from typing import Any, Literal

import torch
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor, nn

from driftlaw.base import Adapter, BatchStatsSettings, Plan, StepOutput
from driftlaw.components.batch_norm import use_batch_stats
from driftlaw.components.losses import entropy
from driftlaw.components.optimizers import make_optimizer, minimize_step
from driftlaw.components.parameters import adapt_layers
from driftlaw.components.stages import freeze_last_stage
from driftlaw.components.views import shuffle_patches
from driftlaw.dense import pixels


class Deyo(Adapter, name="deyo"):
    """DeYO (Lee et al., ICLR 2024): entropy minimisation on images whose prediction changes if patches are shuffled.

    H is the entropy of an image x, p(x) its probabilities, ĉ its predicted class, K the number of classes.

        (1)  keep images with H < 0.5·ln K
        (2)  x' = x in 4×4 patches, shuffled independently for each kept image; forward pass without gradient
        (3)  PLPD = p(x)_ĉ − p(x')_ĉ                 pseudo-label probability difference
        (4)  of these keep images with PLPD > 0.2
        (5)  L = mean over kept images of (e^(E₀ − H) + e^PLPD)·H, E₀ = 0.4·ln K; the factor is a constant

    If an object's shape matters for the prediction, shuffled patches make it less probable, and PLPD is high. Scale and
    shift of norm layers are adapted, except in the last stage of a ResNet and in the last quarter of the blocks of a
    vision transformer. BatchNorm layers use batch statistics; those of (2) are of the kept, shuffled images. If no
    image is kept, there is no step. Logits are from before the update. For logits per pixel, pixels are kept, and those
    of (2) are moved back to the place of their patch.

    **Differences from the paper:** it is not reset between domains, as in the continual benchmarks. The learning rate
    is not scaled for batches below 32 images. The filters (1) and (4) read two counts back to the host, which waits for
    a GPU twice per step: the batch statistics of (2) depend on the number of kept images.
    """

    title = "DeYO"
    paper = "Entropy is not enough for test-time adaptation: from the perspective of disentangled factors, ICLR 2024"
    adapts = "scale and shift of norm layers, except in the last stage"
    forward_cost, backward_cost = 2, 1

    class Config(BatchStatsSettings):
        """Settings of DeYO; the defaults are those for CIFAR-10-C. Texts list CIFAR-10-C, CIFAR-100-C, ImageNet-C."""

        learning_rate: PositiveFloat = 1e-3
        """Step size: 1e-3, 1e-3 with Adam, 2.5e-4 with SGD."""
        optimizer: Literal["adam", "sgd"] = "adam"
        """``adam`` (betas 0.9 and 0.999) or, on ImageNet-C, ``sgd`` (momentum 0.9, not Nesterov's)."""
        entropy_threshold: PositiveFloat = 0.5
        """Threshold of (1), as a share of ln K."""
        entropy_margin: PositiveFloat = 0.4
        """E₀ of (5), as a share of ln K."""
        plpd_threshold: float = 0.2
        """Threshold of (4): 0.2, 0.2, 0.3."""
        patches: PositiveInt = 4
        """Number of patches per side in (2)."""
        freeze_last_stage: bool = True
        """Whether the last stage of a ResNet or vision transformer is frozen."""

    def configure(self, model: nn.Module) -> None:
        """Adapt norm layers, except in the last stage, with batch statistics."""
        adapt_layers(model, ["norm"])
        if self.config.freeze_last_stage:
            freeze_last_stage(model)
        use_batch_stats(model, self.config.stored_stats_weight)

    def setup(self, train_data: Any) -> None:
        """Create the optimizer."""
        kind, parameters = self.config.optimizer, self.trainable_parameters()
        self.optimizer = make_optimizer(kind, parameters, self.config.learning_rate, nesterov=False)

    def draw(self, images: Tensor) -> Plan:
        """Draw a permutation of the patches of every image."""
        order = torch.rand(len(images), self.config.patches**2, generator=self.generator).argsort(dim=1)
        return Plan(host=order.to(images.device, non_blocking=True))

    def update(self, images: Tensor, plan: Plan) -> StepOutput:
        """Predict, filter the images by entropy and PLPD, and take one step."""
        logits = self.model(images)
        log_classes = math.log(logits.shape[1])
        entropies = entropy(logits, reduction="none").view(len(images), -1)
        reliable = entropies < self.config.entropy_threshold * log_classes  # (1)
        shown = reliable.any(dim=1).nonzero().flatten()  # images with a reliable pixel
        plpd = self._plpd(images[shown], logits.detach()[shown], plan.host[shown])
        kept = reliable[shown].flatten() & (plpd > self.config.plpd_threshold)  # (4)
        share = len(plpd[kept]) / entropies.numel()
        if share:
            entropies, plpd = entropies[shown].flatten()[kept], plpd[kept]
            factors = (self.config.entropy_margin * log_classes - entropies.detach()).exp() + plpd.exp()
            minimize_step((factors * entropies).mean(), self.optimizer)  # (5)
        return StepOutput(logits.detach(), {"kept": share})

    @torch.no_grad()
    def _plpd(self, images: Tensor, logits: Tensor, order: Tensor) -> Tensor:
        if not len(images):
            return logits.new_zeros(0)
        shuffled = shuffle_patches(images, order, self.config.patches)  # (2)
        shuffled_logits = self.model(shuffled)
        if shuffled_logits.shape[2:].numel() > 1:  # back to the pixels that they belong to
            shuffled_logits = shuffle_patches(shuffled_logits, order.argsort(dim=1), self.config.patches)
        before, after = (pixels(each).softmax(dim=1) for each in (logits, shuffled_logits))
        predicted = pixels(logits).argmax(dim=1, keepdim=True)
        return (before.gather(1, predicted) - after.gather(1, predicted)).flatten()  # (3)
