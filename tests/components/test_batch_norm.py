"""Batch statistics and held statistics."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from driftlaw.components.batch_norm import fixed_batch_stats, freeze_batch_stats, use_batch_stats
from driftlaw.errors import UsageError


def network() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return (
            nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 3), nn.BatchNorm2d(2)).double().eval()
        )


def test_batch_statistics_normalise_each_batch_by_itself():
    model = network()
    use_batch_stats(model)
    out = model(5 * torch.rand(6, 3, 8, 8, dtype=torch.float64))
    torch.testing.assert_close(out.mean(dim=(0, 2, 3)), torch.zeros(2, dtype=torch.float64), atol=1e-9, rtol=0)


def test_batch_statistics_leave_the_stored_ones_alone():
    model = network()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    use_batch_stats(model)
    model(torch.rand(6, 3, 8, 8, dtype=torch.float64))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_held_statistics_answer_the_same_batch_alike_and_make_images_independent():
    model = network()
    use_batch_stats(model)
    images = torch.rand(6, 3, 8, 8, dtype=torch.float64)
    live = model(images)
    with fixed_batch_stats(model, images):
        torch.testing.assert_close(model(images), live)
        torch.testing.assert_close(model(images[:1]), live[:1])
    assert not torch.allclose(model(images[:1]), live[:1])


def test_held_statistics_are_let_go_even_after_an_error():
    model = network()
    stored = model[1].running_mean
    try:
        with fixed_batch_stats(model, torch.rand(2, 3, 8, 8, dtype=torch.float64)):
            raise ValueError
    except ValueError:
        pass
    assert model[1].running_mean is stored


def trained_network() -> nn.Sequential:
    model = network()
    with torch.no_grad():
        for layer in (model[1], model[3]):
            generator = torch.Generator().manual_seed(len(layer.weight))
            for value in (layer.running_mean, layer.running_var, layer.weight, layer.bias):
                value.copy_(0.2 + torch.rand(value.shape, generator=generator, dtype=value.dtype))
    return model


def mixed_by_hand(model: nn.Sequential, images: torch.Tensor, share: float) -> torch.Tensor:
    values = images
    for layer in model:
        if isinstance(layer, nn.Conv2d):
            values = layer(values)
            continue
        columns = []
        for channel in range(values.shape[1]):
            column = values[:, channel]
            mean = (1 - share) * column.mean() + share * layer.running_mean[channel]
            variance = (1 - share) * column.var(correction=0) + share * layer.running_var[channel]
            normal = (column - mean) / (variance + layer.eps).sqrt()
            columns.append(normal * layer.weight[channel] + layer.bias[channel])
        values = torch.stack(columns, dim=1)
    return values


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 1.0])
def test_mixed_statistics_and_their_gradients_are_those_written_by_hand(share):
    model = trained_network()
    images = torch.rand(6, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected = mixed_by_hand(model, images, share)
    parameters = list(model.parameters())
    slopes = torch.autograd.grad(expected.square().mean(), parameters, allow_unused=True)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    use_batch_stats(model, source_share=share)
    answer = model(images)
    torch.testing.assert_close(answer, expected, rtol=0, atol=1e-10)
    own = torch.autograd.grad(answer.square().mean(), parameters, allow_unused=True)
    for mine, by_hand in zip(own, slopes, strict=True):
        torch.testing.assert_close(mine, by_hand, rtol=0, atol=1e-10)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_mixed_statistics_can_be_held_too():
    model = trained_network()
    use_batch_stats(model, source_share=0.3)
    images = torch.rand(6, 3, 8, 8, dtype=torch.float64)
    live = model(images)
    with fixed_batch_stats(model, images):
        torch.testing.assert_close(model(images), live)
        torch.testing.assert_close(model(images[:1]), live[:1])
    torch.testing.assert_close(model(images), live)


def test_a_layer_that_stores_no_statistics_goes_on_with_those_of_the_batch():
    model = nn.Sequential(nn.BatchNorm2d(3, track_running_stats=False))
    use_batch_stats(model, source_share=0.5)
    out = model(torch.rand(6, 3, 4, 4))
    torch.testing.assert_close(out.mean(dim=(0, 2, 3)), torch.zeros(3), atol=1e-6, rtol=0)


@pytest.mark.parametrize("source_share", [0.0, 0.3])
def test_frozen_statistics_answer_an_image_alone_as_among_the_others(source_share):
    model = trained_network()
    use_batch_stats(model, source_share)
    images = torch.rand(6, 3, 8, 8, dtype=torch.float64)
    before = model[1].running_mean.clone()
    frozen = freeze_batch_stats(model, images)
    torch.testing.assert_close(frozen(images[:1]), model(images)[:1])
    assert not frozen[1].training
    assert torch.equal(model[1].running_mean, before)


def test_frozen_without_images_a_network_goes_back_to_what_it_stores():
    stored, model = trained_network(), trained_network()
    use_batch_stats(model, 0.3)
    images = torch.rand(6, 3, 8, 8, dtype=torch.float64)
    torch.testing.assert_close(freeze_batch_stats(model, None)(images), stored(images))
    with pytest.raises(UsageError, match="store no statistics"):
        freeze_batch_stats(nn.BatchNorm2d(3, track_running_stats=False), None)


def test_a_layer_that_stores_its_statistics_or_answers_nothing_keeps_them():
    model = trained_network()
    use_batch_stats(model)
    model[1].eval()
    model.idle = nn.Identity()
    model.idle.norm = nn.BatchNorm2d(3).double().train()
    frozen = freeze_batch_stats(model, torch.rand(6, 3, 8, 8, dtype=torch.float64))
    assert torch.equal(frozen[1].running_mean, model[1].running_mean)
    assert not torch.equal(frozen[3].running_mean, model[3].running_mean)
    assert torch.equal(frozen.idle.norm.running_mean, torch.zeros(3, dtype=torch.float64))
