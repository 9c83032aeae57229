"""Empirical Fisher information of parameter tensors on unlabelled images.

LAW only uses the mean of a tensor's Fisher diagonal. The mean is linear, so a running sum of means equals the mean of a
running sum: one number per tensor is stored, and nothing of the size of the model.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from driftlaw.components.batch_norm import fixed_batch_stats
from driftlaw.components.losses import pseudo_label_nll
from driftlaw.execution.split_pass import own_rows


def mean_squares(gradients: Sequence[Tensor], sizes: Tensor) -> Tensor:
    """Return the mean square of every tensor, as one vector (tensors,).

    Args:
        gradients: the tensors, of any dtypes.
        sizes: result of `tensor_sizes`. Computed once by the caller, because creating it makes a GPU wait.
    """
    norms: list[Tensor] = list(gradients)
    for dtype in {value.dtype for value in gradients}:  # one foreach call per dtype
        indices = [index for index, value in enumerate(gradients) if value.dtype == dtype]
        norm_dtype = torch.promote_types(dtype, sizes.dtype)
        norms_of_dtype = torch._foreach_norm([gradients[index] for index in indices], 2, norm_dtype)
        for index, norm in zip(indices, norms_of_dtype, strict=True):
            norms[index] = norm.to(sizes.dtype)
    return torch.stack(norms).square() / sizes


def tensor_sizes(tensors: Sequence[Tensor]) -> Tensor:
    """Return the number of entries of every tensor, as a vector on their device, in float32 or wider.

    >>> tensor_sizes([torch.ones(300, 300).half()])
    tensor([90000.])
    """
    dtype = torch.promote_types(tensors[0].dtype, torch.float32)  # float16 ends at 65,504
    return torch.tensor([value.numel() for value in tensors], dtype=dtype, device=tensors[0].device)


def score(logits: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    """Return the score: the gradient of the batch's pseudo-label log-likelihood, up to its sign (Eq. 2).

    The autograd graph is retained. Parameters that the logits do not depend on, such as those of an auxiliary head,
    get a gradient of 0.
    """
    nll = pseudo_label_nll(logits)
    return list(torch.autograd.grad(nll, parameters, retain_graph=True, materialize_grads=True))


def per_sample_fisher(
    model: nn.Module, parameters: Mapping[str, Tensor], images: Tensor, *, chunk_size: int = 16
) -> Tensor:
    """Return the mean of E[s²] over each tensor, as one vector (tensors,) (Eq. 3).

    s is the score of a single image. The BatchNorm statistics of the whole batch are used as constants.

    Args:
        model: the model.
        parameters: trainable tensors by name.
        images: (n, c, h, w).
        chunk_size: number of images whose gradients are in memory at the same time.
    """
    values = {name: value.detach() for name, value in parameters.items()}

    def loss(weights: dict[str, Tensor], image: Tensor) -> Tensor:
        return pseudo_label_nll(functional_call(model, weights, (image[None],)))

    with fixed_batch_stats(model, images), own_rows(images) as (own, sum_over_ranks):
        per_sample_gradients = vmap(grad(loss), in_dims=(None, 0))
        chunks = [per_sample_gradients(values, chunk) for chunk in own.split(chunk_size) if len(chunk)]
    none = [own.new_zeros(())]  # of a rank without rows
    totals = [torch.stack([chunk[name].square().sum() for chunk in chunks] or none).sum() for name in values]
    return sum_over_ranks(torch.stack(totals)) / (len(images) * tensor_sizes(list(values.values())))
