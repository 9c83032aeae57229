"""Auto-RGN: learning rates by relative gradient norm (Lee et al., Surgical fine-tuning, ICLR 2023), without labels."""

from collections.abc import Sequence

import torch
from pydantic import PositiveFloat
from torch import Tensor, nn

from driftlaw.base import Adapter, BatchStatsSettings, Plan, StepOutput
from driftlaw.components.batch_norm import use_batch_stats
from driftlaw.components.layer_rates import first_adam_step
from driftlaw.components.losses import entropy
from driftlaw.components.parameters import require_grad_, select_parameters
from driftlaw.errors import UsageError
from driftlaw.execution.batch_statistics import batch_norm_layers


class AutoRGN(Adapter, name="autorgn"):
    """Auto-RGN minimises the mean entropy of its predictions, with a learning rate per tensor.

    The rate of a tensor θ with gradient g is η·r/max r with r = ‖g‖/‖θ‖, the relative gradient norm. The step is the
    first step of a new Adam. Convolutions, GroupNorm and LayerNorm are adapted; BatchNorm tensors and the linear head
    are frozen. BatchNorm layers use batch statistics. Logits are from before the update.

    **Differences from the paper:** its gradients are those of labelled data, these are of the entropy, as in LAW's
    comparison. LAW's paper does not give the learning rate; the default is LAW's for CIFAR-10-C. A tensor of zeros,
    for which r is undefined, is frozen.
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
        """Adapt convolutions and norm layers other than BatchNorm, with batch statistics."""
        excluded = {value for layer in batch_norm_layers(model) for value in layer.parameters()}
        chosen = [value for value in select_parameters(model, ["conv", "norm"]).values() if value not in excluded]
        if not chosen:
            raise UsageError(
                "Auto-RGN adapts Conv2d, GroupNorm and LayerNorm layers, but the model has none. Use the method 'tent' "
                "or 'source'."
            )
        require_grad_(chosen)
        use_batch_stats(model, self.config.stored_stats_weight)

    def update(self, images: Tensor, plan: Plan) -> StepOutput:
        """Predict the batch, weigh the tensors, and take one step."""
        parameters = self.trainable_parameters()
        logits = self.model(images)
        gradients = list(torch.autograd.grad(entropy(logits), parameters, materialize_grads=True))
        norms = relative_norms(gradients, parameters)
        weights = norms / norms.max().clamp(min=torch.finfo(norms.dtype).tiny)
        first_adam_step(parameters, gradients, self.config.learning_rate * weights)
        return StepOutput(logits.detach(), {"layer_weights": weights})

    def diagnostic_labels(self) -> dict[str, list[str]]:
        """Return the names of the tensors."""
        return {"layer_weights": self.trainable_names}


@torch.no_grad()
def relative_norms(gradients: Sequence[Tensor], parameters: Sequence[Tensor]) -> Tensor:
    """Return ‖g‖/‖θ‖ of every tensor, as one vector (tensors,); 0 if θ is all zeros."""
    gradient_norms, norms = (torch.stack(torch._foreach_norm(list(values))) for values in (gradients, parameters))
    return torch.where(norms > 0, gradient_norms / norms, 0.0)
