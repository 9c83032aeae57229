"""Auto-RGN: rates by relative gradient norm (Lee et al., Surgical fine-tuning, ICLR 2023), run without labels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import PositiveFloat
from torch import Tensor, nn

from driftlaw.base import Adapter, BatchStatsSettings, Plan, StepOutput
from driftlaw.components.batch_norm import batch_norm_layers, use_batch_stats
from driftlaw.components.layer_rates import first_adam_step
from driftlaw.components.losses import entropy
from driftlaw.components.parameters import require_grad_, select_parameters
from driftlaw.errors import UsageError


class AutoRGN(Adapter, name="autorgn"):
    """Minimises the mean entropy of its answers; convolutions move, each tensor at its own rate.

    The score of a tensor is its relative gradient norm ‖g‖/‖θ‖, its weight that score divided by the largest of the
    batch, its rate η times the weight. Then one step of an Adam that is new every batch. BatchNorm tensors are left
    out: they have no score and stand still, though BatchNorm layers normalize with the batch at hand. GroupNorm and
    LayerNorm tensors are scored and move like those of convolutions. The linear head never moves. The answer is from
    before the step.

    **Departs from the paper:** its gradients are of labelled data, ours of the entropy, as in LAW's comparison with
    it. LAW's paper does not print the rate; the default is LAW's own for CIFAR-10-C. A tensor of zeros, to which no
    norm can be relative, stands still.
    """

    title = "AutoRGN"
    paper = "Surgical fine-tuning improves adaptation to distribution shifts, ICLR 2023"
    adapts = "convolutions and norm layers other than BatchNorm, each tensor at its own rate"
    forward_cost, backward_cost = 1, 2

    class Config(BatchStatsSettings):
        """Settings of Auto-RGN."""

        learning_rate: PositiveFloat = 1e-3
        """η, the rate of the tensor with the largest relative gradient norm; LAW's for CIFAR-10-C."""

    def configure(self, model: nn.Module) -> None:
        """Turn on the gradients of convolutions and of norm layers other than BatchNorm, and batch statistics."""
        left_out = {value for layer in batch_norm_layers(model) for value in layer.parameters()}
        chosen = [value for value in select_parameters(model, ["conv", "norm"]).values() if value not in left_out]
        if not chosen:
            raise UsageError(
                "autorgn learns Conv2d, GroupNorm and LayerNorm layers, and this model has none: take tent or source"
            )
        require_grad_(chosen)
        use_batch_stats(model, self.config.share_of_source)

    def update(self, images: Tensor, plan: Plan) -> StepOutput:
        """Answer the batch, weigh the tensors, take one step."""
        return self.replayed(self._descend, images)

    def _descend(self, images: Tensor) -> StepOutput:
        parameters = list(self._learning().values())
        logits = self.model(images)
        gradients = list(torch.autograd.grad(entropy(logits), parameters, materialize_grads=True))
        norms = relative_norms(gradients, parameters)
        weights = norms / norms.max().clamp(min=torch.finfo(norms.dtype).tiny)
        first_adam_step(parameters, gradients, self.config.learning_rate * weights)
        return StepOutput(logits.detach(), {"layer_weights": weights})

    def diagnostic_labels(self) -> dict[str, list[str]]:
        """Name the tensors that ``layer_weights`` speaks of."""
        return {"layer_weights": list(self._learning())}

    def _learning(self) -> dict[str, nn.Parameter]:
        return {name: value for name, value in self.model.named_parameters() if value.requires_grad}


@torch.no_grad()
def relative_norms(gradients: Sequence[Tensor], parameters: Sequence[Tensor]) -> Tensor:
    """Return ‖g‖/‖θ‖ of every tensor, as one vector (tensors,); 0 where θ is all zeros."""
    steepness, length = (torch.stack(torch._foreach_norm(list(values))) for values in (gradients, parameters))
    return torch.where(length > 0, steepness / length, 0.0)
