"""Changes of colour against their definitions, with an amount for all and an amount an image."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from driftlaw.components import color
from tests.reference.views import jitter, luminance

AMOUNTS = {
    "brightness": [0.6, 1.4],
    "contrast": [0.7, 1.3],
    "saturation": [0.5, 1.5],
    "hue": [-0.1, 0.3],
    "gamma": [0.7, 1.3],
}


def some_images(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("name", AMOUNTS)
def test_one_amount_or_one_an_image_equals_the_definition(name):
    images = some_images(2, 3, 6, 5)
    change = getattr(color, name)
    low, high = AMOUNTS[name]
    by_hand = np.stack([jitter(image, name, amount) for image, amount in zip(images.numpy(), (low, high), strict=True)])
    each = change(images, torch.tensor([low, high], dtype=torch.float64).view(-1, 1, 1, 1))
    np.testing.assert_allclose(each, by_hand, atol=1e-12)
    np.testing.assert_allclose(change(images, low)[0], by_hand[0], atol=1e-12)


def test_without_colour_all_channels_are_the_luminance():
    images = some_images(2, 3, 4, 4)
    pale = color.to_grayscale(images)
    for channel in range(3):
        np.testing.assert_allclose(pale[1, channel], luminance(images[1].numpy()), atol=1e-12)


@pytest.mark.parametrize("channels", [1, 4])
def test_images_without_colour_have_none_to_change(channels):
    images = some_images(2, channels, 4, 4)
    for result in (color.hue(images, 0.3), color.saturation(images, 0.5), color.to_grayscale(images)):
        assert torch.equal(result, images)
    assert color.brightness(images, 0.5).shape == color.contrast(images, 0.5).shape == images.shape


def test_grey_pixels_keep_their_colour_whatever_the_turn():
    images = torch.full((1, 3, 2, 2), 0.4)
    assert torch.equal(color.hue(images, 0.25), images)
