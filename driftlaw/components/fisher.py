"""Empirical Fisher information of every parameter tensor on unlabelled images, one number a tensor.

Only the mean of a tensor's diagonal is ever used, and the mean is linear: a running sum of means equals the mean of a
running sum, so nothing of the size of the network is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from driftlaw.components.batch_norm import fixed_batch_stats
from driftlaw.components.losses import pseudo_label_nll


def mean_squares(gradients: Sequence[Tensor], entries: Tensor) -> Tensor:
    """Return the mean of the squares of every tensor, as one vector (tensors,).

    Args:
        gradients: the tensors, in any dtypes.
        entries: what ``tensor_sizes`` says of them; made once, as a GPU waits for numbers of the host's.
    """
    norms: list[Tensor] = list(gradients)
    for dtype in {value.dtype for value in gradients}:  # a GPU takes the norms of one dtype together
        places = [place for place, value in enumerate(gradients) if value.dtype == dtype]
        whole = torch.promote_types(dtype, entries.dtype)
        found = torch._foreach_norm([gradients[place] for place in places], 2, whole)
        for place, norm in zip(places, found, strict=True):
            norms[place] = norm.to(entries.dtype)
    return torch.stack(norms).square() / entries


def tensor_sizes(tensors: Sequence[Tensor]) -> Tensor:
    """Return the number of entries of every tensor, as a vector on their device and in their dtype, or float32.

    >>> tensor_sizes([torch.ones(300, 300).half()])
    tensor([90000.])
    """
    whole = torch.promote_types(tensors[0].dtype, torch.float32)  # 16 bits count to 65,504, and add up to less
    return torch.tensor([value.numel() for value in tensors], dtype=whole, device=tensors[0].device)


def score(logits: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    """Return the gradient of the batch's own-label likelihood over the parameters; the graph is kept (Eq. 2).

    It is 0 for parameters that the logits do not hang on, such as those of a head that is used in training alone.
    """
    likelihood = pseudo_label_nll(logits)
    return list(torch.autograd.grad(likelihood, parameters, retain_graph=True, materialize_grads=True))


def per_sample_fisher(
    model: nn.Module, parameters: Mapping[str, Tensor], images: Tensor, *, chunk_size: int = 16
) -> Tensor:
    """Return E[s²] over the images of a batch, the mean over each tensor, as one vector (tensors,) (Eq. 3).

    s is the gradient of one image's own-label likelihood, with the batch statistics of all images held fixed.

    Args:
        model: the network.
        parameters: the tensors that learn, by name.
        images: (n, c, h, w).
        chunk_size: how many per-sample gradients live at the same time.
    """
    values = {name: value.detach() for name, value in parameters.items()}

    def loss(chosen: dict[str, Tensor], image: Tensor) -> Tensor:
        return pseudo_label_nll(functional_call(model, chosen, (image[None],)))

    with fixed_batch_stats(model, images):
        gradients_of = vmap(grad(loss), in_dims=(None, 0))
        chunks = [gradients_of(values, chunk) for chunk in images.split(chunk_size)]
    totals = [torch.stack([chunk[name].square().sum() for chunk in chunks]).sum() for name in values]
    return torch.stack(totals) / (len(images) * tensor_sizes(list(values.values())))
