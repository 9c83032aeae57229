"""Stand-ins: passes through tensors of their own, whose gradients add up to the network's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn

import driftlaw
from driftlaw.components.layer_rates import sum_gradients
from driftlaw.execution.compile import has_cpp_compiler
from driftlaw.execution.pass_weights import Pass, Watch, passes_apart
from driftlaw.methods.law import Law
from driftlaw.profiling import count_flops

pytestmark = pytest.mark.filterwarnings("ignore:TF32 acceleration")  # torch's own word about mkldnn.flags


class Own(nn.Conv2d):
    """A layer of somebody's own, which does something with its weight first."""

    def forward(self, images: Tensor) -> Tensor:
        return self._conv_forward(images, self.weight - self.weight.mean(), self.bias)


class Middle(nn.Module):
    """A convolution in the hands of others: ``use`` says what is done with it."""

    def __init__(self, use: Callable[[nn.Conv2d, Tensor], Tensor], inner: nn.Module | None = None) -> None:
        super().__init__()
        self.inner = inner or nn.Conv2d(8, 8, 3, padding=1)
        self.held = [value for name, value in self.inner.named_parameters() if name == "weight"]
        self.use = use

    def forward(self, images: Tensor) -> Tensor:
        return self.use(self, images)


def alone(middle: Middle, images: Tensor) -> Tensor:
    with torch.autocast(images.device.type, enabled=False):
        return middle.inner(images.float())


def twice(middle: Middle, images: Tensor) -> Tensor:
    return middle.inner(middle.inner(images))


def standardised(middle: Middle, images: Tensor) -> Tensor:
    weight = middle.inner.weight
    return nn.functional.conv2d(images, (weight - weight.mean()) / weight.std(), padding=1)


def held(middle: Middle, images: Tensor) -> Tensor:
    return nn.functional.conv2d(images, middle.held[0], padding=1)


def called(middle: Middle, images: Tensor) -> Tensor:
    return middle.inner(images)


def held_and_called(middle: Middle, images: Tensor) -> Tensor:
    return middle.inner(images) + held(middle, images.flip(3))


def measured(middle: Middle, images: Tensor) -> Tensor:
    return middle.inner(images) * middle.inner.weight.norm()


def asked_for_its_dtype(middle: Middle, images: Tensor) -> Tensor:
    images = images.to(middle.inner.weight.dtype)
    return middle.inner(images) + images


def counting(middle: Middle, images: Tensor) -> Tensor:
    middle.calls = getattr(middle, "calls", 0) + 1
    return middle.inner(images) * middle.calls


def by_size(middle: Middle, images: Tensor) -> Tensor:
    return middle.inner(images) if images.shape[-1] < 6 else alone(middle, images)


def network(middle: nn.Module | None = None) -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), middle or Own(8, 8, 3), nn.Conv2d(8, 8, 1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))


def names_of(model: nn.Module) -> list[str]:
    return [name for name, _ in model.named_parameters()]


def batches(count: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.rand(6, 3, 8, 8, generator=generator) for _ in range(count)]


def seen(model: nn.Module) -> dict[str, bool]:
    images = batches(1)[0]
    watch = Watch(model, images)
    assert torch.equal(watch(images), model(images))
    return watch.stand_ins(names_of(model))


def apart(model: nn.Module, count: int) -> list[Pass]:
    return passes_apart(model, names_of(model), seen(model), count)


def as_on_a_gpu(adapter: Law) -> Law:
    adapter._lies_on_gpu = lambda: True
    return adapter


@pytest.fixture
def bf16():
    """Autocast on a CPU, by kernels that every CPU has."""
    with torch.backends.mkldnn.flags(enabled=False), torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        yield


def test_gradients_of_passes_apart_add_up_to_the_networks():
    model = network()
    names, parameters = names_of(model), list(model.parameters())
    x, y = batches(2)
    expected = torch.autograd.grad(model(x).square().sum() + 2 * model(y).square().sum(), parameters)
    (network_x, own), (network_y, beside) = apart(model, 2)
    loss = network_x(x).square().sum() + 2 * network_y(y).square().sum()
    first = list(torch.autograd.grad(loss, own, retain_graph=True))
    replaced = [value is not parameter for value, parameter in zip(own, parameters, strict=True)]
    assert replaced == [not name.startswith(("3.", "8.")) for name in names]  # neither Own nor Linear
    second = [
        torch.autograd.grad(loss, value, retain_graph=True)[0] if one else None
        for value, one in zip(beside, replaced, strict=True)
    ]
    torch.testing.assert_close(sum_gradients(parameters, [first, second]), list(expected))


def test_a_network_is_left_as_it_was_and_what_stands_still_has_no_gradient():
    model = network()
    model[0].weight.requires_grad_(False)
    before = dict(model.named_parameters())
    ((call, own),) = apart(model, 1)
    call(batches(1)[0])
    assert all(value is before[name] for name, value in model.named_parameters())
    assert [value.requires_grad for value in own] == [False, *[True] * (len(own) - 1)]
    assert all(value.grad is None for value in model.parameters())
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_a_weight_of_two_layers_stands_for_itself():
    model = network()
    model.append(nn.Unflatten(1, (4, 1, 1)))
    model.append(nn.Conv2d(4, 8, 1, bias=False))
    model.append(nn.Conv2d(8, 8, 1, bias=False))
    model[-1].weight = model[4].weight
    found = seen(model)
    assert "4.weight" not in found
    assert "10.weight" in found


def test_under_autocast_weights_of_convolutions_are_cast_once_and_answer_as_cast_at_every_use(bf16):
    model = network()
    names = names_of(model)
    ((call, own),) = apart(model, 1)
    short = [name for name, value in zip(names, own, strict=True) if value.dtype == torch.bfloat16]
    assert short == ["0.weight", "0.bias", "4.weight", "4.bias"]
    images = batches(1)[0]
    assert torch.equal(call(images), model(images).float())
    gradients = torch.autograd.grad(call(images).square().sum(), own)
    expected = torch.autograd.grad(model(images).float().square().sum(), list(model.parameters()))
    for gradient, other in zip(gradients, expected, strict=True):
        assert torch.equal(gradient.float(), other)


def as_it_is(layer: nn.Module) -> nn.Module:
    return layer


@pytest.mark.parametrize(
    ("use", "wrap"),
    [
        (alone, as_it_is),
        (twice, as_it_is),
        (standardised, as_it_is),
        (held, as_it_is),
        (held_and_called, as_it_is),
        (measured, as_it_is),
        (asked_for_its_dtype, as_it_is),
        (counting, as_it_is),
        (by_size, as_it_is),
        (called, nn.utils.spectral_norm),
        (called, nn.utils.parametrizations.weight_norm),
    ],
)
def test_layers_in_the_hands_of_others_learn_as_they_would(use, wrap, bf16):
    def model() -> nn.Module:
        torch.manual_seed(1)
        return network(Middle(use, wrap(nn.Conv2d(8, 8, 3, padding=1))))

    plain, other = Law(model()), as_on_a_gpu(Law(model()))
    plain._replays.overlap = other._replays.overlap = False
    stream = batches(3)
    for images in (stream[0][:, :, :7, :7], *stream, stream[0][:, :, :7, :7]):
        assert torch.equal(other(images), plain(images))
    assert torch.equal(other.fisher, plain.fisher)
    for value, theirs in zip(other.model.parameters(), plain.model.parameters(), strict=True):
        assert torch.equal(value, theirs)


def test_networks_that_autocast_leaves_alone_are_not_cast(bf16):
    model = network().double()
    ((_, own),) = apart(model.float(), 1)
    assert {value.dtype for value in own} == {torch.float32, torch.bfloat16}
    found = seen(model)
    ((_, own),) = passes_apart(model.double(), names_of(model), found, 1)
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
def test_a_step_with_stand_ins_is_the_step_without(settings, bf16):
    plain, other = (driftlaw.adapt(network(), "law", overlap=False, **settings) for _ in range(2))
    as_on_a_gpu(other)
    for images in batches(6):
        assert torch.equal(other(images), plain(images))
    assert torch.equal(other.fisher, plain.fisher)
    for value, theirs in zip(other.model.parameters(), plain.model.parameters(), strict=True):
        assert torch.equal(value, theirs)


@pytest.mark.skipif(not has_cpp_compiler(), reason="needs a C++ compiler")
def test_a_compiled_network_takes_stand_ins_too():
    plain, other = (driftlaw.adapt(network(), "law", overlap=False, compiled=how) for how in (False, True))
    as_on_a_gpu(other)
    for images in batches(3):
        torch.testing.assert_close(other(images), plain(images), rtol=1e-4, atol=1e-4)
    assert other.execution_info()["compiled"]


def test_a_counter_sees_the_same_step_and_is_not_what_weights_are_watched_under():
    plain, other = Law(network()), as_on_a_gpu(Law(network()))
    images = batches(1)[0]
    (_, expected), (_, first) = count_flops(partial(plain, images)), count_flops(partial(other, images))
    assert first == expected
    assert not other._stand_ins
    other(images)
    (found,) = other._stand_ins.values()
    assert found
    assert count_flops(partial(other, images))[1] == expected
    assert list(other._stand_ins.values()) == [found]


def test_a_hook_on_a_gradient_is_heard():
    plain, other = Law(network()), as_on_a_gpu(Law(network()))
    for adapter in (plain, other):
        adapter._replays.overlap = False
        adapter.model[0].weight.register_hook(torch.zeros_like)
    for images in batches(3):
        assert torch.equal(other(images), plain(images))
    assert torch.equal(other.model[0].weight, network()[0].weight)


def test_on_a_cpu_a_step_works_on_the_network_itself():
    adapter = Law(network())
    (call, own), (other, _) = adapter._networks(batches(1)[0])
    assert call is other is adapter.model
    assert all(value is parameter for value, parameter in zip(own, adapter._tensors(), strict=True))
