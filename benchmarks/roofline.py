"""Roofline of a step: how far its time is above the limit given by its operations, its bytes and measured rates.

The counting rule: operations are those of torch's FLOP counter, 2 per multiply-add, of convolutions and matrix
products, including backward passes. The least bytes are those of the same convolutions and products: each reads its
inputs once and writes its results once, in the dtype it computes in. Everything between them (normalisation, ReLU,
additions, losses) is assumed to cause no memory traffic. In addition, every trainable parameter and its gradient are
read and written once for the update. The bytes as written count every operation that torch runs, with inputs read once,
results written once, and views free. The limit is the larger of operations over the best measured rate and least bytes
over the measured bandwidth. At these rates no schedule of the same operations is faster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.cases import BenchCase, BenchPlan
from benchmarks.models import BenchModel, make_batches
from benchmarks.precision import usable_precision
from benchmarks.targets import BenchTarget, Variant, resolve_settings
from benchmarks.timing import ProgressCallback, Repetitions, cudnn_kernels, measure_interleaved, no_progress, spread
from driftlaw.errors import UsageError
from driftlaw.hardware import to_device
from driftlaw.methods import registered_methods
from driftlaw.profiling import count_flops, timed

EAGER = {"capture": "off", "overlap": False, "compiled": False}  # so that the counters see every operation
RULE = " ".join((__doc__ or "").partition("The counting rule: ")[2].split())
_MATRIX_OPS = {
    torch.ops.aten.convolution.default,
    torch.ops.aten.convolution_backward.default,
    torch.ops.aten.mm.default,
    torch.ops.aten.addmm.default,
    torch.ops.aten.bmm.default,
}


def measure_roofline(
    plan: BenchPlan, repetitions: Repetitions, *, on_progress: ProgressCallback = no_progress
) -> dict[str, Any]:
    """Count the work of a step, and measure the rates of the device and the time of the step, all in one run.

    Each variant is timed alone.

    Returns:
        A record: ``rows`` with one entry per model, batch size and variant (operations, bytes, rates, the limit in
        milliseconds, the measured step and its ratio to the limit), the counting rule, and the device.
    """
    rates = DeviceRates(plan.device)
    rows = []
    for case in plan.cases():
        for variant in plan.supported:
            with cudnn_kernels(plan.deterministic):
                (times,) = measure_interleaved([case.target(variant)], repetitions, on_progress=on_progress)
                rows.append(_with_limit(_row(case, variant, rates), spread(times)))
    protocol = {
        "rounds": repetitions.rounds,
        "steps_per_round": repetitions.steps,
        "deterministic": plan.deterministic,
        "rule": RULE,
    }
    return plan.record("floor", protocol, rows=rows)


def _row(case: BenchCase, variant: Variant, rates: DeviceRates) -> dict[str, Any]:
    precision = precision_of(variant, rates.device)
    shape = largest_convolution(case.model, case.batch_size)
    return {
        **case.info(),
        **variant.info(),
        "precision": precision,
        **count_work(case, variant),
        "bytes_per_second": rates.bandwidth,
        "matrix_operations_per_second": rates.matrix_rate(precision),
        "convolution": shape,
        "convolution_operations_per_second": rates.convolution_rate(shape, precision),
    }


def _with_limit(row: dict[str, Any], milliseconds: dict[str, float]) -> dict[str, Any]:
    rate = max(row["matrix_operations_per_second"], row["convolution_operations_per_second"])
    by_operations = 1000 * row["operations"] / rate
    by_bytes = 1000 * row["least_bytes"] / row["bytes_per_second"]
    limit = max(by_operations, by_bytes)
    return row | {
        "operations_milliseconds": by_operations,
        "least_bytes_milliseconds": by_bytes,
        "bytes_as_written_milliseconds": 1000 * row["bytes_as_written"] / row["bytes_per_second"],
        "floor_milliseconds": limit,
        "bound_by": "operations" if by_operations >= by_bytes else "bytes",
        "milliseconds": milliseconds,
        "times_above_floor": milliseconds["median"] / limit,
    }


def precision_of(variant: Variant, device: torch.device) -> str:
    """Return the precision of a variant; baselines and methods without the setting use float32."""
    if not variant.is_adapter or "precision" not in registered_methods()[variant.method].Config.model_fields:
        return "float32"
    return usable_precision(resolve_settings(variant).get("precision", "auto"), device)


def count_work(case: BenchCase, variant: Variant) -> dict[str, int]:
    """Return ``operations``, ``least_bytes`` and ``bytes_as_written`` of one step, by the counting rule above.

    One whole cycle of steps after the first is counted, because the first step may do one-time work.
    """
    target = case.target(_eager(variant))
    target.run(1 + target.settling)
    _, operations = count_flops(lambda: target.run(target.cycle))
    with MemoryTraffic() as traffic:
        target.run(target.cycle)
    update = 4 * sum(value.numel() * value.element_size() for value in _trainable(target))
    return {
        "operations": operations // target.cycle,
        "least_bytes": traffic.matrix // target.cycle + update,
        "bytes_as_written": traffic.total // target.cycle,
    }


def _eager(variant: Variant) -> Variant:
    if not variant.is_adapter:
        return variant
    fields = registered_methods()[variant.method].Config.model_fields
    settings = dict(variant.settings) | {name: value for name, value in EAGER.items() if name in fields}
    return Variant(variant.label, variant.method, settings, variant.preset)


def _trainable(target: BenchTarget) -> list[nn.Parameter]:
    """Return the parameters that a step updates; empty for a forward pass."""
    owner: Any = getattr(target.step, "__self__", None)
    model = getattr(owner, "model", None)
    return [value for value in model.parameters() if value.requires_grad] if isinstance(model, nn.Module) else []


class MemoryTraffic(TorchDispatchMode):
    """Counts bytes read and written by operations: ``matrix`` of convolutions and products, ``total`` of all."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = self.total = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        results = function(*args, **(kwargs or {}))
        inputs, outputs = _tensors((args, kwargs)), _tensors(results)
        storages = {value.untyped_storage().data_ptr() for value in inputs}
        is_view = all(value.untyped_storage().data_ptr() in storages for value in outputs) and not _writes(function)
        moved = 0 if is_view else sum(value.numel() * value.element_size() for value in (*inputs, *outputs))
        self.total += moved
        self.matrix += moved if function in _MATRIX_OPS else 0
        return results


def _tensors(values: Any) -> list[Tensor]:
    return [value for value in tree_leaves(values) if isinstance(value, Tensor)]


def _writes(function: Any) -> bool:
    return any(
        argument.alias_info is not None and argument.alias_info.is_write for argument in function._schema.arguments
    )


class DeviceRates:
    """Measured rates of a device. Each is measured once, so that all rows of a record use the same rates."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.bandwidth = copy_bandwidth(device)
        self._rates: dict[str, float] = {}

    def matrix_rate(self, precision: str) -> float:
        """Return operations per second of a large matrix product."""
        return self._cached(f"matrix {precision}", lambda: matrix_rate(self.device, precision))

    def convolution_rate(self, shape: dict[str, Any], precision: str) -> float:
        """Return operations per second of a convolution, in the faster of the two memory formats."""

        def measure() -> float:
            return max(convolution_rate(shape, self.device, precision, layout) for layout in (False, True))

        return self._cached(f"convolution {precision} {shape}", measure)

    def _cached(self, name: str, measure: Callable[[], float]) -> float:
        if name not in self._rates:
            self._rates[name] = measure()
        return self._rates[name]


def copy_bandwidth(device: torch.device) -> float:
    """Return bytes per second of a large copy; bytes read and bytes written both count."""
    count = 2**28 if device.type == "cuda" else 2**25
    source, target = (torch.zeros(count, device=device) for _ in range(2))
    return 2 * count * source.element_size() / _fastest(lambda: target.copy_(source), device)


def matrix_rate(device: torch.device, precision: str) -> float:
    """Return operations per second of a large matrix product."""
    side = 8192 if device.type == "cuda" else 1536
    a, b = (torch.randn(side, side, device=device, dtype=_dtype(precision)) for _ in range(2))
    return 2 * side**3 / _fastest(lambda: a @ b, device)


def convolution_rate(shape: dict[str, Any], device: torch.device, precision: str, channels_last: bool) -> float:
    """Return operations per second of the forward pass of one convolution in one memory format."""
    dtype = _dtype(precision)
    images, weight = (torch.rand(shape[name], device=device, dtype=dtype) for name in ("input", "weight"))
    if channels_last:
        images, weight = (to_device(value, device) for value in (images, weight))

    def convolve() -> Tensor:
        return F.conv2d(images, weight, stride=shape["stride"], padding=shape["padding"], groups=shape["groups"])

    with torch.no_grad():
        _, operations = count_flops(convolve)
        return operations / _fastest(convolve, device)


def largest_convolution(model: BenchModel, batch_size: int) -> dict[str, Any]:
    """Return the shape of convolution in which the model spends most of its operations."""
    operations: dict[tuple[Any, ...], int] = {}

    def add(layer: nn.Conv2d, arguments: tuple[Tensor, ...], output: Tensor) -> None:
        (features,) = arguments
        key = (
            tuple(features.shape[1:]),
            tuple(layer.weight.shape),
            tuple(layer.stride),
            tuple(layer.padding),
            layer.groups,
        )
        operations[key] = operations.get(key, 0) + 2 * output[0].numel() * layer.weight[0].numel()

    layers = [layer for layer in model.model.modules() if isinstance(layer, nn.Conv2d)]
    if not layers:
        raise UsageError(f"The model {model.name} has no Conv2d layer, which the roofline needs. Use another model.")
    hooks = [layer.register_forward_hook(add) for layer in layers]
    try:
        with torch.no_grad():
            model.model(make_batches(2, model.image_size, count=1)[0])
    finally:
        for hook in hooks:
            hook.remove()
    image, weight, stride, padding, groups = max(operations, key=lambda key: operations[key])
    return {
        "input": [batch_size, *image],
        "weight": list(weight),
        "stride": list(stride),
        "padding": list(padding),
        "groups": groups,
    }


def _dtype(precision: str) -> torch.dtype:
    return torch.bfloat16 if precision == "bf16" else torch.float32


def _fastest(work: Callable[[], Any], device: torch.device, at_least: float = 0.3) -> float:
    """Return the seconds per call of the fastest of several measurements, after one warm-up."""
    repeats = 20 if device.type == "cuda" else 3  # a GPU must not wait for the host
    for _ in range(repeats):
        work()
    fastest, spent = float("inf"), 0.0
    while spent < at_least:
        with timed(device) as watch:
            for _ in range(repeats):
                work()
        fastest, spent = min(fastest, watch.seconds / repeats), spent + watch.seconds
    return fastest
