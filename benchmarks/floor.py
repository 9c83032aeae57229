"""How far a step stands above what the machine could do: its operations and bytes against measured rates.

The counting rule. Operations are those of torch's FLOP counter, 2 a multiply-add, of convolutions and matrix products,
backward passes included. The least bytes are those of the same convolutions and products: each reads its inputs once
and writes its results once, in the dtype it computes in, and everything between them (normalising, ReLU, adding,
losses) is taken to cost no traffic of its own; then every learning parameter is read and written once more with its
gradient, for the update. The bytes as written count every operation torch runs, inputs read once and results written
once, views for free. The floor is the larger of operations over the best measured rate and least bytes over the
measured bandwidth: at these rates no schedule of the same operations is faster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.cases import Cell, Plan
from benchmarks.models import Network, make_batches
from benchmarks.timing import Pace, Told, kernels, silent, spread, take_turns
from benchmarks.variants import Contender, Variant, settings_of
from driftlaw.errors import UsageError
from driftlaw.hardware import to_device, usable_precision
from driftlaw.methods import registered_methods
from driftlaw.profiling import count_flops, timed

AS_WRITTEN = {"capture": "off", "overlap": False, "compiled": False}  # what a counter sees all of
_HEAVY = {
    torch.ops.aten.convolution.default,
    torch.ops.aten.convolution_backward.default,
    torch.ops.aten.mm.default,
    torch.ops.aten.addmm.default,
    torch.ops.aten.bmm.default,
}


def measure_floor(plan: Plan, pace: Pace, *, told: Told = silent) -> dict[str, Any]:
    """Count the work of a step, measure what the machine can do and how long the step takes, all in one run.

    The arguments are those of ``compare_steps``; each variant is timed alone.

    Returns:
        Plain data: ``rows`` with one entry a network, batch size and variant (operations, bytes, rates, the floor in
        milliseconds, the measured step and how many times above the floor it stands), the counting rule, and where.
    """
    machine = Machine(plan.device)
    rows = []
    for cell in plan.cells():
        for variant in plan.fit:
            with kernels(plan.deterministic):
                (taken,) = take_turns([cell.contender(variant)], pace, told=told)
                rows.append(_held_against(_row(cell, variant, machine), spread(taken)))
    how = {
        "rounds": pace.rounds,
        "steps_per_round": pace.steps,
        "deterministic": plan.deterministic,
        "rule": " ".join((__doc__ or "").partition("The counting rule. ")[2].split()),
    }
    return plan.record("floor", how, rows=rows)


def _row(cell: Cell, variant: Variant, machine: Machine) -> dict[str, Any]:
    precision = precision_of(variant, machine.device)
    shape = busiest_convolution(cell.network, cell.batch_size)
    return {
        **cell.facts(),
        **variant.facts(),
        "precision": precision,
        **count_work(cell, variant),
        "bytes_per_second": machine.bandwidth,
        "matrix_operations_per_second": machine.matrix_rate(precision),
        "convolution": shape,
        "convolution_operations_per_second": machine.convolution_rate(shape, precision),
    }


def _held_against(row: dict[str, Any], milliseconds: dict[str, float]) -> dict[str, Any]:
    """Return a row with the floor, what it is made of, and how far above it the measured step stands."""
    rate = max(row["matrix_operations_per_second"], row["convolution_operations_per_second"])
    by_operations = 1000 * row["operations"] / rate
    by_bytes = 1000 * row["least_bytes"] / row["bytes_per_second"]
    floor = max(by_operations, by_bytes)
    return row | {
        "operations_milliseconds": by_operations,
        "least_bytes_milliseconds": by_bytes,
        "bytes_as_written_milliseconds": 1000 * row["bytes_as_written"] / row["bytes_per_second"],
        "floor_milliseconds": floor,
        "bound_by": "operations" if by_operations >= by_bytes else "bytes",
        "milliseconds": milliseconds,
        "times_above_floor": milliseconds["median"] / floor,
    }


def precision_of(variant: Variant, device: torch.device) -> str:
    """Return what a variant computes in: the references and methods without the setting in float32."""
    if not variant.is_ours or "precision" not in registered_methods()[variant.method].Config.model_fields:
        return "float32"
    return usable_precision(settings_of(variant).get("precision", "auto"), device)


# --- counting ----------------------------------------------------------------------------------------------------


def count_work(cell: Cell, variant: Variant) -> dict[str, int]:
    """Return ``operations``, ``least_bytes`` and ``bytes_as_written`` of one step of a variant, by the rule above.

    Steps after the first are counted, a whole cycle of them: the first may do what is done once.
    """
    contender = cell.contender(_as_written(variant))
    contender.run(1 + contender.settling)
    _, operations = count_flops(lambda: contender.run(contender.cycle))
    with _Traffic() as traffic:
        contender.run(contender.cycle)
    update = 4 * sum(value.numel() * value.element_size() for value in _learning(contender))
    return {
        "operations": operations // contender.cycle,
        "least_bytes": traffic.heavy // contender.cycle + update,
        "bytes_as_written": traffic.total // contender.cycle,
    }


def _as_written(variant: Variant) -> Variant:
    if not variant.is_ours:
        return variant
    fields = registered_methods()[variant.method].Config.model_fields
    settings = dict(variant.settings) | {name: value for name, value in AS_WRITTEN.items() if name in fields}
    return Variant(variant.label, variant.method, settings, variant.preset)


def _learning(contender: Contender) -> list[nn.Parameter]:
    """Return the parameters that a contender's step moves; a forward pass moves none."""
    owner: Any = getattr(contender.step, "__self__", None)
    model = getattr(owner, "model", None)
    return [value for value in model.parameters() if value.requires_grad] if isinstance(model, nn.Module) else []


class _Traffic(TorchDispatchMode):
    """Counts the bytes that operations read and write: ``heavy`` of convolutions and products, ``total`` of all."""

    def __init__(self) -> None:
        super().__init__()
        self.heavy = self.total = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        results = function(*args, **(kwargs or {}))
        given, made = _tensors((args, kwargs)), _tensors(results)
        homes = {value.untyped_storage().data_ptr() for value in given}
        is_view = all(value.untyped_storage().data_ptr() in homes for value in made) and not _writes(function)
        moved = 0 if is_view else sum(value.numel() * value.element_size() for value in (*given, *made))
        self.total += moved
        self.heavy += moved if function in _HEAVY else 0
        return results


def _tensors(values: Any) -> list[Tensor]:
    return [value for value in tree_leaves(values) if isinstance(value, Tensor)]


def _writes(function: Any) -> bool:
    return any(
        argument.alias_info is not None and argument.alias_info.is_write for argument in function._schema.arguments
    )


# --- what the machine can do -------------------------------------------------------------------------------------


class Machine:
    """Measured rates of a device, each measured once: the floors of one record stand on the same ground."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.bandwidth = copy_bandwidth(device)
        self._rates: dict[str, float] = {}

    def matrix_rate(self, precision: str) -> float:
        """Return operations a second of a large matrix product."""
        return self._once(f"matrix {precision}", lambda: matrix_rate(self.device, precision))

    def convolution_rate(self, shape: dict[str, Any], precision: str) -> float:
        """Return operations a second of a convolution in the faster of the two memory layouts."""

        def measure() -> float:
            return max(convolution_rate(shape, self.device, precision, layout) for layout in (False, True))

        return self._once(f"convolution {precision} {shape}", measure)

    def _once(self, name: str, measure: Callable[[], float]) -> float:
        if name not in self._rates:
            self._rates[name] = measure()
        return self._rates[name]


def copy_bandwidth(device: torch.device) -> float:
    """Return bytes a second of a large copy, what is read and what is written counted."""
    count = 2**28 if device.type == "cuda" else 2**25
    source, target = (torch.zeros(count, device=device) for _ in range(2))
    return 2 * count * source.element_size() / _fastest(lambda: target.copy_(source), device)


def matrix_rate(device: torch.device, precision: str) -> float:
    """Return operations a second of a large matrix product."""
    side = 8192 if device.type == "cuda" else 1536
    a, b = (torch.randn(side, side, device=device, dtype=_dtype(precision)) for _ in range(2))
    return 2 * side**3 / _fastest(lambda: a @ b, device)


def convolution_rate(shape: dict[str, Any], device: torch.device, precision: str, channels_last: bool) -> float:
    """Return operations a second of one convolution, forward, in one of the two memory layouts."""
    dtype = _dtype(precision)
    images, weight = (torch.rand(shape[name], device=device, dtype=dtype) for name in ("input", "weight"))
    if channels_last:
        images, weight = (to_device(value, device) for value in (images, weight))

    def convolve() -> Tensor:
        return F.conv2d(images, weight, stride=shape["stride"], padding=shape["padding"], groups=shape["groups"])

    with torch.no_grad():
        _, operations = count_flops(convolve)
        return operations / _fastest(convolve, device)


def busiest_convolution(network: Network, batch_size: int) -> dict[str, Any]:
    """Return the shape of convolution on which the network spends most of its operations."""
    spent: dict[tuple[Any, ...], int] = {}

    def note(layer: nn.Conv2d, arguments: tuple[Tensor, ...], answer: Tensor) -> None:
        (features,) = arguments
        key = (
            tuple(features.shape[1:]),
            tuple(layer.weight.shape),
            tuple(layer.stride),
            tuple(layer.padding),
            layer.groups,
        )
        spent[key] = spent.get(key, 0) + 2 * answer[0].numel() * layer.weight[0].numel()

    layers = [layer for layer in network.model.modules() if isinstance(layer, nn.Conv2d)]
    if not layers:
        raise UsageError(f"{network.name} has no convolution, and a floor is measured with one: take another network")
    hooks = [layer.register_forward_hook(note) for layer in layers]
    try:
        with torch.no_grad():
            network.model(make_batches(2, network.side, count=1)[0])
    finally:
        for hook in hooks:
            hook.remove()
    image, weight, stride, padding, groups = max(spent, key=lambda key: spent[key])
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
    """Return the seconds of one call in the fastest of several stretches, after one that fills the caches."""
    repeats = 20 if device.type == "cuda" else 3  # the host must not be what a GPU waits for
    for _ in range(repeats):
        work()
    fastest, spent = float("inf"), 0.0
    while spent < at_least:
        with timed(device) as watch:
            for _ in range(repeats):
                work()
        fastest, spent = min(fastest, watch.seconds / repeats), spent + watch.seconds
    return fastest
