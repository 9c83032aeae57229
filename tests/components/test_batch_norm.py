"""BatchNorm statistics: of the batch, mixed, and fixed."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence

from driftlaw.components.batch_norm import fixed_batch_stats, freeze_batch_stats, use_batch_stats
from driftlaw.errors import UsageError


def small_model() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return (
            nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 3), nn.BatchNorm2d(2)).double().eval()
        )


def test_batch_statistics_normalize_each_batch():
    model = small_model()
    use_batch_stats(model)
    out = model(5 * torch.rand(6, 3, 8, 8, dtype=torch.float64))
    torch.testing.assert_close(out.mean(dim=(0, 2, 3)), torch.zeros(2, dtype=torch.float64), atol=1e-9, rtol=0)


def test_stored_statistics_are_not_updated():
    model = small_model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    use_batch_stats(model)
    model(torch.rand(6, 3, 8, 8, dtype=torch.float64))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_fixed_statistics_give_the_same_logits_and_make_images_independent():
    model = small_model()
    use_batch_stats(model)
    images = torch.rand(6, 3, 8, 8, dtype=torch.float64)
    expected = model(images)
    with fixed_batch_stats(model, images):
        torch.testing.assert_close(model(images), expected)
        torch.testing.assert_close(model(images[:1]), expected[:1])
    assert not torch.allclose(model(images[:1]), expected[:1])


def test_fixed_statistics_end_after_an_error():
    model = small_model()
    stored = model[1].running_mean
    with pytest.raises(ValueError), fixed_batch_stats(model, torch.rand(2, 3, 8, 8, dtype=torch.float64)):
        raise ValueError
    assert model[1].running_mean is stored


def trained_model() -> nn.Sequential:
    model = small_model()
    with torch.no_grad():
        for layer in (model[1], model[3]):
            generator = torch.Generator().manual_seed(len(layer.weight))
            for value in (layer.running_mean, layer.running_var, layer.weight, layer.bias):
                value.copy_(0.2 + torch.rand(value.shape, generator=generator, dtype=value.dtype))
    return model


def mixed_with_loops(model: nn.Sequential, images: torch.Tensor, weight: float) -> torch.Tensor:
    values = images
    for layer in model:
        if isinstance(layer, nn.Conv2d):
            values = layer(values)
            continue
        channels = []
        for channel in range(values.shape[1]):
            channel_values = values[:, channel]
            mean = (1 - weight) * channel_values.mean() + weight * layer.running_mean[channel]
            variance = (1 - weight) * channel_values.var(correction=0) + weight * layer.running_var[channel]
            normalized = (channel_values - mean) / (variance + layer.eps).sqrt()
            channels.append(normalized * layer.weight[channel] + layer.bias[channel])
        values = torch.stack(channels, dim=1)
    return values


@pytest.mark.parametrize("weight", [0.1, 0.5, 0.9, 1.0])
def test_mixed_statistics_and_their_gradients_equal_the_loops(weight):
    model = trained_model()
    images = torch.rand(6, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected = mixed_with_loops(model, images, weight)
    parameters = list(model.parameters())
    expected_gradients = torch.autograd.grad(expected.square().mean(), parameters, allow_unused=True)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    use_batch_stats(model, stored_stats_weight=weight)
    actual = model(images)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-10)
    gradients = torch.autograd.grad(actual.square().mean(), parameters, allow_unused=True)
    torch.testing.assert_close(gradients, expected_gradients, rtol=0, atol=1e-10)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("scale", [0.0, 0.3, 1.0])
def test_the_adaptive_weight_follows_the_divergence_in_a_pass_with_stored_statistics(scale):
    model = trained_model()
    values = images = 0.5 + scale * torch.rand(
        6, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(2)
    )
    divergences = []
    for layer in model:
        for channel in range(len(layer.weight) if isinstance(layer, nn.BatchNorm2d) else 0):
            batch = values[:, channel].detach()
            first = Normal(batch.mean(), (batch.var(correction=0) + layer.eps).sqrt())
            second = Normal(layer.running_mean[channel], (layer.running_var[channel] + layer.eps).sqrt())
            divergences.append(float(kl_divergence(first, second)) / len(layer.weight) / 2)  # two layers
        values = layer(values)
    expected = mixed_with_loops(model, images, 1 / (1 + (sum(divergences) / 0.2) ** 2))
    parameters = list(model.parameters())
    gradients = torch.autograd.grad(expected.square().mean(), parameters)
    use_batch_stats(model, "adaptive")
    actual = model(images)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(torch.autograd.grad(actual.square().mean(), parameters), gradients)  # weight: constant


def test_adaptive_statistics_are_the_stored_ones_if_nothing_has_changed():
    layer = trained_model()[3]
    values = torch.rand(5, 2, 6, 6, dtype=torch.float64)
    values = (values - values.mean((0, 2, 3), keepdim=True)) / values.std((0, 2, 3), correction=0, keepdim=True)
    values = values * layer.running_var.sqrt()[:, None, None] + layer.running_mean[:, None, None]
    expected, model = layer(values), nn.Sequential(layer)
    use_batch_stats(model, "adaptive")
    torch.testing.assert_close(model(values), expected)


def test_mixed_statistics_can_be_fixed():
    model = trained_model()
    use_batch_stats(model, stored_stats_weight=0.3)
    images = torch.rand(6, 3, 8, 8, dtype=torch.float64)
    expected = model(images)
    with fixed_batch_stats(model, images):
        torch.testing.assert_close(model(images), expected)
        torch.testing.assert_close(model(images[:1]), expected[:1])
    torch.testing.assert_close(model(images), expected)


def test_a_layer_without_stored_statistics_uses_those_of_the_batch():
    model = nn.Sequential(nn.BatchNorm2d(3, track_running_stats=False))
    use_batch_stats(model, stored_stats_weight=0.5)
    out = model(torch.rand(6, 3, 4, 4))
    torch.testing.assert_close(out.mean(dim=(0, 2, 3)), torch.zeros(3), atol=1e-6, rtol=0)


@pytest.mark.parametrize("stored_stats_weight", [0.0, 0.3, "adaptive"])
def test_frozen_statistics_give_the_logits_of_the_batch_for_a_single_image(stored_stats_weight):
    model = trained_model()
    use_batch_stats(model, stored_stats_weight)
    images = torch.rand(6, 3, 8, 8, dtype=torch.float64)
    before = model[1].running_mean.clone()
    frozen = freeze_batch_stats(model, images)
    torch.testing.assert_close(frozen(images[:1]), model(images)[:1])
    assert not frozen[1].training
    assert torch.equal(model[1].running_mean, before)


def test_freezing_without_images_returns_to_stored_statistics():
    stored, model = trained_model(), trained_model()
    use_batch_stats(model, 0.3)
    images = torch.rand(6, 3, 8, 8, dtype=torch.float64)
    torch.testing.assert_close(freeze_batch_stats(model, None)(images), stored(images))
    with pytest.raises(UsageError, match="have no stored statistics"):
        freeze_batch_stats(nn.BatchNorm2d(3, track_running_stats=False), None)


def test_a_layer_with_stored_statistics_or_that_is_not_called_keeps_them():
    model = trained_model()
    use_batch_stats(model)
    model[1].eval()
    model.idle = nn.Identity()
    model.idle.norm = nn.BatchNorm2d(3).double().train()
    frozen = freeze_batch_stats(model, torch.rand(6, 3, 8, 8, dtype=torch.float64))
    assert torch.equal(frozen[1].running_mean, model[1].running_mean)
    assert not torch.equal(frozen[3].running_mean, model[3].running_mean)
    assert torch.equal(frozen.idle.norm.running_mean, torch.zeros(3, dtype=torch.float64))
