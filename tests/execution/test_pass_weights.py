"""Weights per pass: copies of the weights whose gradients add up to those of the network."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn

import driftlaw
from driftlaw.components.layer_rates import sum_gradients
from driftlaw.execution.cuda import CudaEngine
from driftlaw.execution.pass_weights import WeightUseTracer, weights_per_pass
from driftlaw.execution.two_pass import Pass
from driftlaw.methods.law import Law
from driftlaw.profiling import count_flops
from tests.execution.networks import needs_compiler

SEQUENTIAL = Law.Config(overlap=False)  # threads would change the order of sums
pytestmark = pytest.mark.filterwarnings("ignore:TF32 acceleration")  # torch warns about mkldnn.flags


class CenteredConv(nn.Conv2d):
    """A convolution that changes its weight before it uses it."""

    def forward(self, images: Tensor) -> Tensor:
        return self._conv_forward(images, self.weight - self.weight.mean(), self.bias)


class Middle(nn.Module):
    """A module that uses a convolution in the way of ``use``."""

    def __init__(self, use: Callable[[nn.Conv2d, Tensor], Tensor], inner: nn.Module | None = None) -> None:
        super().__init__()
        self.inner = inner or nn.Conv2d(8, 8, 3, padding=1)
        self.stored = [value for name, value in self.inner.named_parameters() if name == "weight"]
        self.use = use

    def forward(self, images: Tensor) -> Tensor:
        return self.use(self, images)


def without_autocast(middle: Middle, images: Tensor) -> Tensor:
    with torch.autocast(images.device.type, enabled=False):
        return middle.inner(images.float())


def twice(middle: Middle, images: Tensor) -> Tensor:
    return middle.inner(middle.inner(images))


def standardized(middle: Middle, images: Tensor) -> Tensor:
    weight = middle.inner.weight
    return nn.functional.conv2d(images, (weight - weight.mean()) / weight.std(), padding=1)


def stored(middle: Middle, images: Tensor) -> Tensor:
    return nn.functional.conv2d(images, middle.stored[0], padding=1)


def called(middle: Middle, images: Tensor) -> Tensor:
    return middle.inner(images)


def stored_and_called(middle: Middle, images: Tensor) -> Tensor:
    return middle.inner(images) + stored(middle, images.flip(3))


def scaled_by_norm(middle: Middle, images: Tensor) -> Tensor:
    return middle.inner(images) * middle.inner.weight.norm()


def reads_dtype(middle: Middle, images: Tensor) -> Tensor:
    images = images.to(middle.inner.weight.dtype)
    return middle.inner(images) + images


def counting(middle: Middle, images: Tensor) -> Tensor:
    middle.calls = getattr(middle, "calls", 0) + 1
    return middle.inner(images) * middle.calls


def by_size(middle: Middle, images: Tensor) -> Tensor:
    return middle.inner(images) if images.shape[-1] < 6 else without_autocast(middle, images)


def network(middle: nn.Module | None = None) -> nn.Sequential:
    torch.manual_seed(0)
    layers = [
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        middle or CenteredConv(8, 8, 3),
        nn.Conv2d(8, 8, 1),
        nn.ReLU(),
    ]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))


def names_of(model: nn.Module) -> list[str]:
    return [name for name, _ in model.named_parameters()]


def batches(count: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.rand(6, 3, 8, 8, generator=generator) for _ in range(count)]


def replaceable(model: nn.Module) -> dict[str, bool]:
    images = batches(1)[0]
    tracer = WeightUseTracer(model, images)
    assert torch.equal(tracer(images), model(images))
    return tracer.replaceable(names_of(model))


def separate_passes(model: nn.Module, count: int) -> list[Pass]:
    return weights_per_pass(model, names_of(model), replaceable(model), count)


def with_cuda_engine(adapter: Law) -> Law:
    """Let an adapter on a CPU use the engine of GPUs."""
    config = adapter.config
    adapter._executor.engine = CudaEngine(adapter.trainable_names, overlap=True, recompute=config.recompute)
    return adapter


@pytest.fixture
def bf16():
    """bf16 autocast on a CPU, with kernels that every CPU has."""
    with torch.backends.mkldnn.flags(enabled=False), torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        yield


def test_gradients_of_separate_passes_add_up_to_those_of_the_network():
    model = network()
    names, parameters = names_of(model), list(model.parameters())
    x, y = batches(2)
    expected = torch.autograd.grad(model(x).square().sum() + 2 * model(y).square().sum(), parameters)
    (network_x, own), (network_y, beside) = separate_passes(model, 2)
    loss = network_x(x).square().sum() + 2 * network_y(y).square().sum()
    first = list(torch.autograd.grad(loss, own, retain_graph=True))
    replaced = [value is not parameter for value, parameter in zip(own, parameters, strict=True)]
    assert replaced == [not name.startswith(("3.", "8.")) for name in names]  # neither CenteredConv nor Linear
    second = [
        torch.autograd.grad(loss, value, retain_graph=True)[0] if one else None
        for value, one in zip(beside, replaced, strict=True)
    ]
    torch.testing.assert_close(sum_gradients(parameters, [first, second]), list(expected))


def test_the_network_does_not_change_and_frozen_weights_have_no_gradient():
    model = network()
    model[0].weight.requires_grad_(False)
    before = dict(model.named_parameters())
    ((call, own),) = separate_passes(model, 1)
    call(batches(1)[0])
    assert all(value is before[name] for name, value in model.named_parameters())
    assert [value.requires_grad for value in own] == [False, *[True] * (len(own) - 1)]
    assert all(value.grad is None for value in model.parameters())
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_a_weight_shared_by_two_layers_is_not_replaced():
    model = network()
    model.append(nn.Unflatten(1, (4, 1, 1)))
    model.append(nn.Conv2d(4, 8, 1, bias=False))
    model.append(nn.Conv2d(8, 8, 1, bias=False))
    model[-1].weight = model[4].weight
    found = replaceable(model)
    assert "4.weight" not in found
    assert "10.weight" in found


def test_under_autocast_weights_of_convolutions_are_cast_once(bf16):
    model = network()
    names = names_of(model)
    ((call, own),) = separate_passes(model, 1)
    short = [name for name, value in zip(names, own, strict=True) if value.dtype == torch.bfloat16]
    assert short == ["0.weight", "0.bias", "4.weight", "4.bias"]
    images = batches(1)[0]
    assert torch.equal(call(images), model(images))
    gradients = torch.autograd.grad(call(images).float().square().sum(), own)
    expected = torch.autograd.grad(model(images).float().square().sum(), list(model.parameters()))
    for gradient, other in zip(gradients, expected, strict=True):
        assert torch.equal(gradient.float(), other)


def unchanged(layer: nn.Module) -> nn.Module:
    return layer


@pytest.mark.parametrize(
    ("use", "wrap"),
    [
        (without_autocast, unchanged),
        (twice, unchanged),
        (standardized, unchanged),
        (stored, unchanged),
        (stored_and_called, unchanged),
        (scaled_by_norm, unchanged),
        (reads_dtype, unchanged),
        (counting, unchanged),
        (by_size, unchanged),
        (called, nn.utils.spectral_norm),
        (called, nn.utils.parametrizations.weight_norm),
    ],
)
def test_weights_that_others_read_are_updated_as_without_the_engine(use, wrap, bf16):
    def model() -> nn.Module:
        torch.manual_seed(1)
        return network(Middle(use, wrap(nn.Conv2d(8, 8, 3, padding=1))))

    plain, other = Law(model(), SEQUENTIAL), with_cuda_engine(Law(model(), SEQUENTIAL))
    stream = batches(3)
    for images in (stream[0][:, :, :7, :7], *stream, stream[0][:, :, :7, :7]):
        assert torch.equal(other(images), plain(images))
    assert torch.equal(other.fisher, plain.fisher)
    for value, theirs in zip(other.model.parameters(), plain.model.parameters(), strict=True):
        assert torch.equal(value, theirs)


def test_float64_networks_are_not_cast(bf16):
    model = network().double()
    ((_, own),) = separate_passes(model.float(), 1)
    assert {value.dtype for value in own} == {torch.float32, torch.bfloat16}
    found = replaceable(model)
    ((_, own),) = weights_per_pass(model.double(), names_of(model), found, 1)
    assert {value.dtype for value in own} == {torch.float64}


SETTINGS = [
    {},
    {"compat": "released_2024"},
    {"moments": "kept"},
    {"recompute": True},
    {"fisher_every": 4, "fisher_settling": 1, "skip_share": 0.3, "augment_every": 2},
    {"layers": ("norm",)},
    {"layers": ("conv", "linear", "head")},
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_step_with_weights_per_pass_equals_the_step_without(settings, bf16):
    plain, other = (driftlaw.adapt(network(), "law", overlap=False, **settings) for _ in range(2))
    with_cuda_engine(other)
    for images in batches(6):
        assert torch.equal(other(images), plain(images))
    assert torch.equal(other.fisher, plain.fisher)
    for value, theirs in zip(other.model.parameters(), plain.model.parameters(), strict=True):
        assert torch.equal(value, theirs)


@needs_compiler
def test_a_compiled_network_accepts_weights_per_pass():
    plain, other = (driftlaw.adapt(network().double(), "law", overlap=False, compiled=how) for how in (False, True))
    with_cuda_engine(other)
    for images in batches(3):
        torch.testing.assert_close(other(images.double()), plain(images.double()), rtol=0, atol=1e-7)
    assert other.execution_info()["compiled"]


def test_a_flop_counter_sees_the_same_step_and_is_not_traced():
    plain, other = Law(network(), SEQUENTIAL), with_cuda_engine(Law(network(), SEQUENTIAL))
    images = batches(1)[0]
    for adapter in (plain, other):
        count_flops(partial(adapter, images))  # the first step has one more pass
    (_, expected), (_, first) = count_flops(partial(plain, images)), count_flops(partial(other, images))
    assert first == expected
    assert not other._executor.engine.traced
    other(images)
    (found,) = other._executor.engine.traced.values()
    assert found
    assert count_flops(partial(other, images))[1] == expected
    assert list(other._executor.engine.traced.values()) == [found]


def test_a_hook_on_a_gradient_is_called():
    plain, other = Law(network(), SEQUENTIAL), with_cuda_engine(Law(network(), SEQUENTIAL))
    for adapter in (plain, other):
        adapter.model[0].weight.register_hook(torch.zeros_like)
    for images in batches(3):
        assert torch.equal(other(images), plain(images))
    assert torch.equal(other.model[0].weight, network()[0].weight)
