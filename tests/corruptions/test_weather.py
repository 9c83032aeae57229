"""Fog's fractal, brightness and snow in cases that can be checked by hand."""

import torch

from driftlaw.corruptions import corrupt
from driftlaw.corruptions.rng import CounterRNG
from driftlaw.corruptions.weather import plasma_fractal


def test_a_plasma_map_runs_from_zero_to_one():
    heights = plasma_fractal(64, 2.0, CounterRNG(0, "fog", 1, torch.arange(5)))
    assert heights.shape == (5, 64, 64)
    assert torch.equal(heights.amin((1, 2)), torch.zeros(5))
    assert torch.equal(heights.amax((1, 2)), torch.ones(5))


def test_a_faster_decay_gives_a_smoother_map():
    rough, smooth = (plasma_fractal(64, decay, CounterRNG(0, "fog", 1, torch.arange(20))) for decay in (1.4, 3.0))
    assert smooth.diff(dim=2).abs().mean() < rough.diff(dim=2).abs().mean()


def test_brightness_keeps_the_proportions_of_the_channels():
    pixel = torch.tensor([0.4, 0.2, 0.1], dtype=torch.float64).view(1, 3, 1, 1)
    bright = corrupt(pixel, "brightness", 4)
    torch.testing.assert_close(bright / bright[:, :1], pixel / pixel[:, :1], atol=0.01, rtol=0)
    torch.testing.assert_close(bright[:, :1], pixel[:, :1] + 0.2, atol=0.01, rtol=0)


def test_brightness_raises_black_to_gray():
    assert corrupt(torch.zeros(1, 3, 2, 2, dtype=torch.uint8), "brightness", 4).unique().tolist() == [51]


def test_snow_only_lightens():
    images = torch.full((4, 3, 32, 32), 60, dtype=torch.uint8)
    assert (corrupt(images, "snow", 3) >= images).all()
