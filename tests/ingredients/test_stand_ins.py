"""Stand-ins: passes through tensors of their own, whose gradients add up to the network's."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import driftlaw
from driftlaw.adapters.law import Law
from driftlaw.ingredients.layer_rates import total_gradients
from driftlaw.ingredients.stand_ins import passes_apart


class Own(nn.Conv2d):
    """A layer of somebody's own, which does something with its weight first."""

    def forward(self, images: Tensor) -> Tensor:
        return self._conv_forward(images, self.weight - self.weight.mean(), self.bias)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), Own(8, 8, 3), nn.Conv2d(8, 8, 1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))


def names_of(model: nn.Module) -> list[str]:
    return [name for name, _ in model.named_parameters()]


def batches(count: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.rand(6, 3, 8, 8, generator=generator) for _ in range(count)]


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
    (network_x, own), (network_y, beside) = passes_apart(model, names, 2)
    loss = network_x(x).square().sum() + 2 * network_y(y).square().sum()
    first = list(torch.autograd.grad(loss, own, retain_graph=True))
    replaced = [value is not parameter for value, parameter in zip(own, parameters, strict=True)]
    assert replaced == [not name.startswith(("3.", "8.")) for name in names]  # neither Own nor Linear
    second = [
        torch.autograd.grad(loss, value, retain_graph=True)[0] if apart else None
        for value, apart in zip(beside, replaced, strict=True)
    ]
    torch.testing.assert_close(total_gradients(parameters, [first, second]), list(expected))


def test_a_network_is_left_as_it_was_and_what_stands_still_has_no_gradient():
    model = network()
    model[0].weight.requires_grad_(False)
    before = dict(model.named_parameters())
    ((call, own),) = passes_apart(model, names_of(model), 1)
    call(batches(1)[0])
    assert all(value is before[name] for name, value in model.named_parameters())
    assert [value.requires_grad for value in own] == [False, *[True] * (len(own) - 1)]
    assert all(value.grad is None for value in model.parameters())


def test_a_weight_of_two_layers_stands_for_itself():
    model = network()
    model.append(nn.Unflatten(1, (4, 1, 1)))
    model.append(nn.Conv2d(4, 8, 1, bias=False))
    model.append(nn.Conv2d(8, 8, 1, bias=False))
    model[-1].weight = model[4].weight
    names = names_of(model)
    ((_, own),) = passes_apart(model, names, 1)
    assert own[names.index("4.weight")] is model[4].weight
    assert own[names.index("10.weight")] is not model[10].weight


def test_under_autocast_weights_of_convolutions_are_cast_once_and_answer_as_cast_at_every_use(bf16):
    model = network()
    names = names_of(model)
    ((call, own),) = passes_apart(model, names, 1)
    short = [name for name, value in zip(names, own, strict=True) if value.dtype == torch.bfloat16]
    assert short == ["0.weight", "0.bias", "4.weight", "4.bias"]
    images = batches(1)[0]
    assert torch.equal(call(images), model(images))
    gradients = torch.autograd.grad(call(images).float().square().sum(), own)
    expected = torch.autograd.grad(model(images).float().square().sum(), list(model.parameters()))
    for gradient, other in zip(gradients, expected, strict=True):
        assert torch.equal(gradient.float(), other)


@pytest.mark.parametrize("settings", [{}, {"compat": "released_2024"}, {"moments": "kept"}, {"recompute": True}])
def test_a_step_with_stand_ins_is_the_step_without(settings, bf16, monkeypatch):
    plain, apart = (driftlaw.adapt(network(), "law", overlap=False, **settings) for _ in range(2))
    monkeypatch.setattr(apart, "_networks", lambda images: passes_apart(apart.model, apart.learning, 2))
    for images in batches(4):
        torch.testing.assert_close(apart(images), plain(images), rtol=0.02, atol=0.02)
    torch.testing.assert_close(apart.fisher, plain.fisher, rtol=0.05, atol=1e-6)
    born = network()
    moved, differs = (
        torch.cat([(ours - theirs).detach().flatten().abs() for ours, theirs in zip(a, b, strict=True)]).mean()
        for a, b in (
            (plain.model.parameters(), born.parameters()),
            (apart.model.parameters(), plain.model.parameters()),
        )
    )
    assert moved > 0
    assert differs < 0.1 * moved


def test_on_a_cpu_a_step_works_on_the_network_itself():
    adapter = Law(network())
    (call, own), (other, _) = adapter._networks(batches(1)[0])
    assert call is other is adapter.model
    assert all(value is parameter for value, parameter in zip(own, adapter._tensors(), strict=True))
