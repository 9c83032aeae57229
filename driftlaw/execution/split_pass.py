"""Passes through a network that the ranks of a group share: each rank runs its part of the rows of every batch.

A method calls its networks with whole batches, as in one process. Hooks of the network select the rows of this rank and
gather the logits of all ranks, so that every rank computes the same loss. The gradient of the network's parameters is
summed over the ranks, and BatchNorm layers use the statistics of all rows. What a method computes outside its networks
is computed on every rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from driftlaw.execution.ranks import Ranks

_current: ContextVar[_SplitPasses | None] = ContextVar("_current", default=None)


def make_splittable(network: nn.Module) -> None:
    """Register the hooks that split passes inside ``split_passes``. Copies of the network have them as well."""
    network.register_forward_pre_hook(_before_pass)
    network.register_forward_hook(_after_pass, always_call=True)


@contextmanager
def split_passes(ranks: Ranks | None) -> Iterator[None]:
    """Context manager in which networks with the hooks share their passes; None: each process computes alone."""
    passes = None if ranks is None else _SplitPasses(ranks)
    token = _current.set(passes)
    try:
        yield
    finally:
        _current.reset(token)
        if passes is not None:
            passes.end()  # after an interrupt, for which torch calls no hooks


class _SplitPasses:
    """The passes of one step. ``counts`` and ``shares`` are the rows of each rank in the last pass."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        self.counts: list[int] = []
        self.shares = torch.empty(0)
        self.rows = 0
        self.is_open = False
        self._undo = ExitStack()

    def start(self, network: nn.Module, images: Tensor, *others: Any) -> tuple[Any, ...] | None:
        parts = images.tensor_split(self.ranks.size)
        self.counts = [len(part) for part in parts]
        if not len(images):
            return None
        # A rank without rows computes one that is not used, because many networks cannot run on none.
        own = parts[self.ranks.rank] if self.counts[self.ranks.rank] else images[:1]
        self.rows = len(own)
        self.shares = torch.tensor(self.counts, dtype=torch.float64, device=images.device) / len(images)
        self._undo.enter_context(_WholeBatchNorm(self))
        if torch.is_grad_enabled():
            self._replace_parameters(network)
        self.is_open = True
        return own, *others

    def _replace_parameters(self, network: nn.Module) -> None:
        """Replace trainable parameters by results of ``_SumGradients`` until the pass ends."""
        places = [
            (module._parameters, name, value)
            for module in network.modules()
            for name, value in module._parameters.items()
            if value is not None and value.requires_grad
        ]
        own = list({id(value): value for _, _, value in places}.values())
        summed: Any = _SumGradients.apply(self.ranks, *own) if own else ()  # type: ignore[no-untyped-call]
        replaced = dict(zip(map(id, own), summed, strict=True))
        for parameters, name, value in places:
            parameters[name] = replaced[id(value)]
            self._undo.callback(parameters.__setitem__, name, value)

    def end(self) -> None:
        self.is_open = False
        self._undo.close()


def _before_pass(network: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    passes = _current.get()
    return None if passes is None else passes.start(network, *args)


def _after_pass(network: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
    passes = _current.get()
    if passes is None or not passes.is_open:
        return None
    passes.end()
    return None if output is None else gather_rows(output)  # None: the pass failed


def gather_rows(values: Tensor) -> Tensor:
    """Return the rows of all ranks, from those of this rank in the last pass; values without a group."""
    passes = _current.get()
    if passes is None or not sum(passes.counts):
        return values
    gathered: Tensor = _GatherRows.apply(values, passes.ranks, passes.counts)  # type: ignore[no-untyped-call]
    return gathered


@contextmanager
def own_rows(images: Tensor) -> Iterator[tuple[Tensor, Callable[[Tensor], Tensor]]]:
    """Context manager in which passes are not split.

    Yields:
        The rows of this rank, possibly none, and a function that sums a tensor over the ranks.
    """
    passes = _current.get()
    with split_passes(None):
        if passes is None:
            yield images, lambda values: values
        else:
            yield images.tensor_split(passes.ranks.size)[passes.ranks.rank], passes.ranks.sum


def mean_and_variance(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and biased variance of every channel, over the rows of all ranks; gradients flow through both."""
    dims = [dim for dim in range(values.ndim) if dim != 1]
    # On a CPU, sums over channels-last tensors are three digits less accurate than over contiguous ones.
    variance, mean = torch.var_mean(values.contiguous(), dim=dims, correction=0)
    passes = _current.get()
    if passes is None or not passes.is_open:
        return mean, variance
    own = torch.stack([mean, variance])
    statistics: Tensor = _GatherStatistics.apply(own, passes.ranks)  # type: ignore[no-untyped-call]
    means, variances = statistics.unbind(1)
    shares = passes.shares.to(mean.dtype).unsqueeze(1)
    mean = (shares * means).sum(0)
    return mean, (shares * (variances + (means - mean).square())).sum(0)


class _WholeBatchNorm(TorchFunctionMode):
    """Mode in which ``functional.batch_norm`` with batch statistics uses those of all ranks."""

    def __init__(self, passes: _SplitPasses) -> None:
        super().__init__()
        self.passes = passes

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return (self.batch_norm if func is F.batch_norm else func)(*args, **(kwargs or {}))

    def batch_norm(
        self,
        values: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Tensor:
        """Normalize as ``functional.batch_norm`` does."""
        if not training:
            return F.batch_norm(values, running_mean, running_var, weight, bias, training, momentum, eps)
        count = values.numel() // values.shape[1] // self.passes.rows * sum(self.passes.counts)
        if count == 1:
            raise ValueError("Expected more than 1 value per channel when training")  # as functional.batch_norm
        like = values if weight is None else weight
        mean, variance = mean_and_variance(values.to(like.dtype))
        if running_mean is not None and running_var is not None:
            with torch.no_grad():
                running_mean.lerp_(mean.to(running_mean), momentum)
                running_var.lerp_((variance * (count / (count - 1))).to(running_var), momentum)
        scale = (variance + eps).rsqrt() * (1 if weight is None else weight)
        shift = (0 if bias is None else bias) - mean * scale
        shape = [1, -1] + [1] * (values.ndim - 2)
        return torch.addcmul(shift.view(shape), values.to(like.dtype), scale.view(shape)).to(values.dtype)


# --- autograd functions ------------------------------------------------------------------------------------------


class _GatherRows(torch.autograd.Function):
    """Rows of all ranks. Every rank computes the same loss of them, so its own rows of the gradient are complete."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, ranks: Ranks, counts: Sequence[int]) -> Tensor:
        ctx.start, ctx.count, ctx.shape = sum(counts[: ranks.rank]), counts[ranks.rank], values.shape
        return ranks.gather_rows(values, counts)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        own = gradients[0].new_zeros(ctx.shape)
        own[: ctx.count] = gradients[0][ctx.start : ctx.start + ctx.count]
        return own, None, None


class _GatherStatistics(torch.autograd.Function):
    """Statistics (ranks, 2, channels). Each rank uses those of all, so gradients are summed over the ranks."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, ranks: Ranks) -> Tensor:
        ctx.ranks = ranks
        return torch.stack(ranks.gather(values))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return ctx.ranks.sum(gradients[0])[ctx.ranks.rank], None


class _SumGradients(torch.autograd.Function):
    """Parameters as they are. Their gradients, of the rows of each rank, are summed over the ranks, all at once."""

    @staticmethod
    def forward(ctx: Any, ranks: Ranks, *parameters: Tensor) -> tuple[Tensor, ...]:
        ctx.ranks = ranks
        ctx.set_materialize_grads(False)
        return tuple(value.view_as(value) for value in parameters)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        result = list(gradients)
        for dtype in {value.dtype: None for value in gradients if value is not None}:
            chosen = [index for index, value in enumerate(gradients) if value is not None and value.dtype == dtype]
            flat = ctx.ranks.sum(torch.cat([gradients[index].flatten() for index in chosen]))
            parts = flat.split([gradients[index].numel() for index in chosen])
            for index, part in zip(chosen, parts, strict=True):
                result[index] = part.view(gradients[index].shape)
        return None, *result
