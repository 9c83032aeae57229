"""Batch statistics and held statistics."""

from __future__ import annotations

import torch
from torch import nn

from driftlaw.ingredients.normalisation import held_statistics, use_batch_statistics


def network() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return (
            nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 3), nn.BatchNorm2d(2)).double().eval()
        )


def test_batch_statistics_normalise_each_batch_by_itself():
    model = network()
    use_batch_statistics(model)
    out = model(5 * torch.rand(6, 3, 8, 8, dtype=torch.float64))
    torch.testing.assert_close(out.mean(dim=(0, 2, 3)), torch.zeros(2, dtype=torch.float64), atol=1e-9, rtol=0)


def test_batch_statistics_leave_the_stored_ones_alone():
    model = network()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    use_batch_statistics(model)
    model(torch.rand(6, 3, 8, 8, dtype=torch.float64))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_held_statistics_answer_the_same_batch_alike_and_make_images_independent():
    model = network()
    use_batch_statistics(model)
    images = torch.rand(6, 3, 8, 8, dtype=torch.float64)
    live = model(images)
    with held_statistics(model, images):
        torch.testing.assert_close(model(images), live)
        torch.testing.assert_close(model(images[:1]), live[:1])
    assert not torch.allclose(model(images[:1]), live[:1])


def test_held_statistics_are_let_go_even_after_an_error():
    model = network()
    stored = model[1].running_mean
    try:
        with held_statistics(model, torch.rand(2, 3, 8, 8, dtype=torch.float64)):
            raise ValueError
    except ValueError:
        pass
    assert model[1].running_mean is stored
