"""Color operations compared with their definitions, with one amount for all images and one per image."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from driftlaw.components import color
from tests.reference.views import jitter, luminance

AMOUNTS = {
    "brightness": [0.6, 1.4],
    "contrast": [0.7, 1.3],
    "saturation": [0.5, 1.5],
    "hue": [-0.1, 0.3],
    "gamma": [0.7, 1.3],
}


def random_images(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("name", AMOUNTS)
def test_operations_equal_their_definitions(name):
    images = random_images(2, 3, 6, 5)
    operation = getattr(color, name)
    low, high = AMOUNTS[name]
    expected = np.stack([jitter(images[0].numpy(), name, low), jitter(images[1].numpy(), name, high)])
    per_image = operation(images, torch.tensor([low, high], dtype=torch.float64).view(-1, 1, 1, 1))
    np.testing.assert_allclose(per_image, expected, atol=1e-12)
    np.testing.assert_allclose(operation(images, low)[0], expected[0], atol=1e-12)


def test_all_channels_of_a_grayscale_image_are_the_luminance():
    images = random_images(2, 3, 4, 4)
    grayscale = color.to_grayscale(images)
    for channel in range(3):
        np.testing.assert_allclose(grayscale[1, channel], luminance(images[1].numpy()), atol=1e-12)


@pytest.mark.parametrize("channels", [1, 4])
def test_images_without_three_channels_have_no_color_to_change(channels):
    images = random_images(2, channels, 4, 4)
    for result in (color.hue(images, 0.3), color.saturation(images, 0.5), color.to_grayscale(images)):
        assert torch.equal(result, images)
    assert color.brightness(images, 0.5).shape == color.contrast(images, 0.5).shape == images.shape


def test_gray_pixels_are_not_changed_by_a_hue_rotation():
    images = torch.full((1, 3, 2, 2), 0.4)
    assert torch.equal(color.hue(images, 0.25), images)
