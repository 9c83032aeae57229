"""Checks that the weights of a model can be adapted: initialised, floating-point, finite, not quantised."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from driftlaw.errors import combined_error

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
MAX_PROBLEMS = 5  # listed in one error


def check_weights(model: nn.Module) -> None:
    """Raise UsageError, with a list of the problems, if the weights of a model cannot be adapted.

    Parameters must be initialised, finite and of one of ``DTYPES``. Running statistics must be finite. Other buffers
    must not contain NaN, but may be infinite, as attention masks are.
    """
    problems = list(_problems(model))
    if problems:
        more = [f"and {len(problems) - MAX_PROBLEMS} more"] if len(problems) > MAX_PROBLEMS else []
        raise combined_error("The weights of the model cannot be used:", problems[:MAX_PROBLEMS] + more)


def _problems(model: nn.Module) -> Iterator[str]:
    for name, module in model.named_modules():
        kind = type(module)
        if kind.__module__.startswith("torch.") and ".quantized" in kind.__module__:
            yield f"{name or 'the model'}: a quantised {kind.__name__}; pass the model from before the quantisation"
    for name, value in [*model.named_parameters(), *model.named_buffers()]:
        is_parameter = isinstance(value, nn.Parameter)
        if is_lazy(value):
            yield f"{name}: not initialised; pass a batch through the model first, to initialise its lazy layers"
        elif value.is_meta:
            yield f"{name}: on the device 'meta', without values; load the weights first"
        elif value.is_quantized or (is_parameter and value.dtype not in DTYPES):
            yield f"{name}: dtype {value.dtype}; expected float32, float64, float16 or bfloat16"
        elif _not_finite(value, is_parameter or "running_" in name):
            yield f"{name}: contains NaN or infinite values; use weights from before the training diverged"


@torch.no_grad()
def _not_finite(value: Tensor, refuse_infinity: bool) -> bool:
    """Return True if a floating-point tensor contains NaN, or infinity where that is refused."""
    if value.dtype not in DTYPES or value.layout != torch.strided or not value.numel():
        return False
    extremes = torch.stack(value.aminmax())  # one pass without copies; NaN is passed on
    return bool((extremes.isfinite().logical_not() if refuse_infinity else extremes.isnan()).any())
