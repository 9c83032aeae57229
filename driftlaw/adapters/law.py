"""LAW: layer-wise auto-weighting by Fisher information (Park et al., WACV 2024)."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat
from torch import Tensor, nn

from driftlaw.contract import Adapter, Output, SmallBatches
from driftlaw.errors import UsageError
from driftlaw.ingredients.augmentation import Draw, augment
from driftlaw.ingredients.features import find_head
from driftlaw.ingredients.fisher import batch_score, mean_squares, per_sample_fisher, sizes
from driftlaw.ingredients.layer_rates import Groups, exponential_min_max, fresh_adam_step, kept_adam_step
from driftlaw.ingredients.losses import cross_entropy_between, entropy
from driftlaw.ingredients.normalisation import use_batch_statistics
from driftlaw.ingredients.parameters import let_learn, select_parameters


class Law(Adapter, name="law"):
    """Minimises entropy plus consistency under augmentation; convolutions and norm layers move, each at its own rate.

    A batch x is answered, y = f(x). The gradient of y's likelihood at its own arg-max labels, squared, is added to the
    Fisher information of every parameter tensor. Tensors to which the likelihood is sharp learn at the full rate, flat
    ones stand still: the rate of a tensor is η·w̄, where w̄ is the square root of its mean Fisher information, scaled to
    [0, 1] over all tensors and raised to τ. Then one step down

        L = entropy(y) + λ · cross-entropy(y → f(augmented x)).

    The answer is y, from before the step. The linear head never moves unless ``layers`` names it.

    **Departs from the paper:** where the paper and its released code part, the defaults follow the code, which made the
    published numbers: a weight a tensor (``grouping``), the mean in place of the trace (``reduction``), the squared
    gradient of the batch mean (``fisher``), no moment outlives a batch (``moments``), gradients flow through the
    target of the consistency loss (``detach_target``). The first release also squared a stale gradient; that is off
    unless asked for (``compat``).
    """

    title = "LAW"
    paper = "Layer-wise auto-weighting for non-stationary test-time adaptation, WACV 2024"
    learns = "convolutions and norm layers, each tensor at its own rate"
    forward_units, backward_units = 2, 6

    class Config(SmallBatches):
        """Settings of LAW; the defaults are the paper's for CIFAR-10-C."""

        unsaid: ClassVar[frozenset[str]] = SmallBatches.unsaid | {"layers"}

        learning_rate: PositiveFloat = 1e-3
        """η, the rate of the sharpest tensor; 1e-3, 5e-5, 2e-4 for CIFAR-10-C, CIFAR-100-C, ImageNet-C."""
        tau: NonNegativeFloat = 1.0
        """τ, the exponent of the min-max scaler; 1.0, 0.6, 1.0."""
        consistency_weight: NonNegativeFloat = 0.1
        """λ, the weight of the consistency loss, 0.01 × the number of classes; 0.1, 1, 10."""
        grouping: Literal["tensor", "module", "block"] = "tensor"
        """What shares a weight: a parameter ``tensor``, the tensors of a ``module``, or of a ``block``."""
        reduction: Literal["mean", "trace"] = "mean"
        """How the Fisher diagonal of a group becomes a number; with ``trace`` large convolutions take over."""
        fisher: Literal["batch", "per_sample"] = "batch"
        """The square of the ``batch``-mean gradient, or the mean of ``per_sample`` squares (statistics held fixed)."""
        moments: Literal["fresh", "kept"] = "fresh"
        """Adam's moments: ``fresh`` every batch, so that a step is about η·w̄·sign(g), or ``kept``."""
        compat: Literal["none", "released_2024"] = "none"
        """``released_2024`` adds the previous step's gradient under the score, as the first release did."""
        detach_target: bool = False
        """Whether the answer is a constant as the target of the consistency loss."""
        fisher_decay: float = Field(default=1.0, ge=0.0, le=1.0)
        """γ, what is kept of the Fisher information from batch to batch (Appendix B.1)."""
        layers: tuple[Literal["conv", "norm", "linear", "head"], ...] = Field(default=("conv", "norm"), min_length=1)
        """What learns: ``conv``, ``norm`` and ``linear`` layers; the last linear one, the ``head``, only by name."""

    def prepare(self, model: nn.Module) -> nn.Module:
        """Turn on the gradients of the layers that learn, and batch statistics."""
        chosen = _choose(model, self.config.layers)
        if not chosen:
            raise UsageError(
                f"law was to learn {' and '.join(self.config.layers)}, and this model has no such layers: by default "
                "they are Conv2d and norm layers; take others in with layers = [«linear», «head»], or take source"
            )
        let_learn(chosen)
        use_batch_statistics(model, self.config.share_of_source)
        return model

    def build(self, source: Any) -> None:
        """Make the Fisher sums, one number a tensor, and whatever else the settings keep between steps."""
        learning = self._learning()
        entries = sizes(list(learning.values()))
        self.register_buffer("fisher", torch.zeros_like(entries))
        self.groups = Groups(list(learning), entries, self.config.grouping)
        if self.config.moments == "kept":
            self._keep("first")
            self._keep("second")
        if self.config.compat == "released_2024":
            if self.config.fisher == "per_sample":
                raise UsageError(
                    "compat = «released_2024» squares a batch gradient: it goes with fisher = «batch» alone"
                )
            self._keep("stale")

    def adapt(self, images: Tensor) -> Output:
        """Answer the batch, weigh the tensors, take one step."""
        learning = self._learning()
        parameters = list(learning.values())
        logits = self.model(images)
        self.fisher.mul_(self.config.fisher_decay).add_(self._information(learning, images, logits))  # Eq. 4
        sharpness = self.groups.sharpness(self.fisher, self.config.reduction)  # Eq. 5
        weights = exponential_min_max(sharpness, self.config.tau)  # Eq. 7
        gradients = list(torch.autograd.grad(self._loss(images, logits), parameters, materialize_grads=True))
        self._descend(parameters, gradients, self.config.learning_rate * weights[self.groups.member])
        return Output(logits.detach(), {"layer_weights": weights})

    def fact_labels(self) -> dict[str, list[str]]:
        """Name the groups that ``layer_weights`` speaks of."""
        return {"layer_weights": self.groups.names}

    def _learning(self) -> dict[str, nn.Parameter]:
        return {name: value for name, value in self.model.named_parameters() if value.requires_grad}

    def _information(self, learning: dict[str, nn.Parameter], images: Tensor, logits: Tensor) -> Tensor:
        """Return the Fisher information of this batch, a number a tensor (Eq. 2 and 3)."""
        if self.config.fisher == "per_sample":
            return per_sample_fisher(self.model, learning, images)
        score = batch_score(logits, list(learning.values()))
        if self.config.compat == "released_2024":
            score = torch._foreach_add(score, self._kept("stale"))
        return mean_squares(score)

    def _loss(self, images: Tensor, logits: Tensor) -> Tensor:
        target = logits.detach() if self.config.detach_target else logits
        augmented = self.model(augment(images, Draw.from_generator(self.generator)))
        consistency = cross_entropy_between(target, augmented)  # Eq. 8
        return entropy(logits) + self.config.consistency_weight * consistency  # Eq. 9

    def _descend(self, parameters: list[nn.Parameter], gradients: list[Tensor], rates: Tensor) -> None:
        if self.config.moments == "fresh":
            fresh_adam_step(parameters, gradients, rates)  # Eq. 10
        else:
            first, second = self._kept("first"), self._kept("second")
            kept_adam_step(parameters, gradients, rates, first=first, second=second, step=self.steps + 1)
        if self.config.compat == "released_2024":
            torch._foreach_copy_(self._kept("stale"), gradients)

    def _keep(self, name: str) -> None:
        for number, value in enumerate(self._learning().values()):
            self.register_buffer(f"{name}_{number}", torch.zeros_like(value))

    def _kept(self, name: str) -> list[Tensor]:
        return [self.get_buffer(f"{name}_{number}") for number in range(len(self.fisher))]


def _choose(model: nn.Module, layers: tuple[str, ...]) -> list[nn.Parameter]:
    """Return the parameters of the layers asked for; the head's go with no other kind."""
    chosen = list(select_parameters(model, [kind for kind in layers if kind != "head"]).values())
    if not {"linear", "head"} & set(layers):
        return chosen
    head = list(find_head(model).parameters())
    others = [value for value in chosen if all(value is not own for own in head)]
    return others + head if "head" in layers else others
