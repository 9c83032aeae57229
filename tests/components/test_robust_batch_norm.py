"""Robust BatchNorm: statistics move by a share of the batch's, and gradients flow through this share."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from driftlaw.components.robust_batch_norm import robust_batch_stats

RATE = 0.05


@pytest.fixture
def layer() -> nn.BatchNorm2d:
    layer = nn.BatchNorm2d(3).double().eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        layer.weight.copy_(torch.rand(3, generator=generator))
        layer.running_mean.copy_(torch.rand(3, generator=generator))
        layer.running_var.copy_(torch.rand(3, generator=generator) + 0.5)
    return layer


def random_values(seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(4, 3, 5, 5, generator=generator, dtype=torch.float64) * 2 + 1


def test_output_gradient_and_stored_statistics_follow_the_formula(layer):
    values = random_values().requires_grad_()
    mean = (1 - RATE) * layer.running_mean + RATE * values.mean((0, 2, 3))
    variance = (1 - RATE) * layer.running_var + RATE * values.var((0, 2, 3), correction=0)
    shape = (1, 3, 1, 1)
    expected = (values - mean.view(shape)) / (variance + layer.eps).sqrt().view(shape) * layer.weight.view(shape)
    (expected_gradient,) = torch.autograd.grad(expected.square().sum(), values, retain_graph=True)
    before = layer.running_mean.clone()
    with robust_batch_stats(layer, RATE):
        output = layer(values)
        assert torch.equal(layer.running_mean, before)  # they change when the backward pass is over
        (gradient,) = torch.autograd.grad(output.square().sum(), values)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(gradient, expected_gradient)
    torch.testing.assert_close(layer.running_mean, mean.detach())
    torch.testing.assert_close(layer.running_var, variance.detach())


def test_outside_the_context_stored_statistics_are_used_and_kept(layer):
    plain = copy.deepcopy(layer)
    with robust_batch_stats(layer, RATE):
        pass
    values = random_values()
    assert torch.equal(layer(values), plain(values))
    assert not layer._forward_pre_hooks


def test_after_an_error_nothing_is_stored(layer):
    before = layer.running_mean.clone()
    model = nn.Sequential(layer, nn.Conv2d(4, 1, 1).double())  # the layer has three channels
    with pytest.raises(RuntimeError, match="channels"), robust_batch_stats(model, RATE):
        model(random_values())
    assert torch.equal(layer.running_mean, before)
    assert not layer._forward_pre_hooks


def test_layers_without_stored_statistics_use_those_of_the_batch():
    layer = nn.BatchNorm2d(3, track_running_stats=False).double().eval()
    with robust_batch_stats(layer, RATE):
        output = layer(random_values())
    torch.testing.assert_close(output.mean((0, 2, 3)), torch.zeros(3, dtype=torch.float64), rtol=0, atol=1e-12)
