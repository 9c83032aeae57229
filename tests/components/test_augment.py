"""The augmentation of a batch compared with a pixel-by-pixel implementation."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import Tensor

from driftlaw.components.augment import JITTER, AugmentParams, augment, draw_augmentation, move_back
from tests.reference.augmentation import reference_augment, reference_sharp_augment


def random_images(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def random_params(seed: int = 4) -> AugmentParams:
    return AugmentParams.from_generator(torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("size", [(16, 16), (16, 24)])
def test_it_equals_the_pixel_by_pixel_implementation(seed, size):
    images, params = random_images(2, 3, *size), random_params(seed)
    noise = torch.randn(images.shape, generator=torch.Generator().manual_seed(params.noise_seed), dtype=torch.float64)
    expected = reference_augment(images.numpy(), params, noise.numpy())
    np.testing.assert_allclose(augment(images, params).numpy(), expected, atol=1e-10)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("size", [(16, 16), (16, 24)])
def test_the_sharp_variant_equals_the_pixel_by_pixel_implementation(seed, size):
    images, params = random_images(2, 3, *size), random_params(seed)
    expected = np.stack([reference_sharp_augment(image, params) for image in images.numpy()])
    np.testing.assert_allclose(augment(images, params, sharp=True).numpy(), expected, atol=1e-10)


def test_parameters_are_in_their_ranges_and_jitter_orders_vary():
    generator = torch.Generator().manual_seed(1)
    draws = [AugmentParams.from_generator(generator) for _ in range(400)]
    for params in draws:
        assert sorted(name for name, _ in params.jitter) == sorted(JITTER)
        assert all(JITTER[name][1] <= amount <= JITTER[name][2] for name, amount in params.jitter)
        assert abs(params.degrees) <= 15
        assert max(map(abs, params.shift)) <= 1 / 16
        assert 0.9 <= params.scale <= 1.1
        assert 0.001 <= params.sigma <= 0.5
    assert 120 < sum(params.flip for params in draws) < 280
    assert len({tuple(name for name, _ in params.jitter) for params in draws}) > 100


def test_the_same_generator_state_gives_the_same_bits():
    images = random_images(3, 3, 16, 16)
    assert torch.equal(augment(images, random_params()), augment(images, random_params()))


def test_all_images_of_a_batch_share_the_parameters_and_the_input_is_not_changed():
    images, params = random_images(4, 3, 16, 16), random_params()
    before = images.clone()
    difference = augment(images, params) - augment(images.flip(0), params).flip(0)
    assert difference.abs().max() < 0.05  # the noise alone
    assert torch.equal(images, before)


def test_images_with_one_channel_keep_one_channel():
    images = random_images(2, 1, 16, 16)
    augmented = augment(images, random_params())
    assert augmented.shape == images.shape
    assert not torch.equal(augmented, images)


@pytest.mark.parametrize("resolution", [(48, 64), (12, 16)], ids=["full", "a quarter"])
@pytest.mark.parametrize("flip", [False, True])
def test_predictions_of_moved_images_are_moved_back(flip, resolution):
    # The prediction is the coordinate of what is seen, for which bilinear sampling is exact away from the border.
    y, x = torch.meshgrid(torch.linspace(0, 1, 48), torch.linspace(0, 1, 64), indexing="ij")
    images = torch.stack([y, x, x]).double()[None]
    params = AugmentParams((), degrees=12.0, shift=(0.05, -0.04), scale=1.08, sigma=0.5, flip=flip, noise_seed=0)
    seen = augment(images, params, sharp=True)
    augmented, expected = (torch.nn.functional.interpolate(each, resolution, mode="area") for each in (seen, images))
    moved, visible = move_back(augmented, params, images.shape[2:])
    error, visible = (moved - expected).abs().amax((0, 1)), visible.view(resolution)
    inside = tuple(slice(side // 4, -side // 4) for side in resolution)
    assert error[inside].max() < 1e-6
    assert visible[inside].all()
    assert not visible.all()
    assert error[~visible].min() > 1e-3
    assert error[visible].max() < 0.05


def test_photometric_augmentation_of_dense_predictions_moves_nothing():
    images = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    free, photometric = (torch.Generator().manual_seed(5) for _ in range(2))
    expected = draw_augmentation(images, free, None).params
    drawn = draw_augmentation(images, photometric, "photometric")
    assert drawn.params == dataclasses.replace(expected, degrees=0.0, shift=(0.0, 0.0), scale=1.0, flip=False)
    assert drawn.align is None
    assert torch.equal(free.get_state(), photometric.get_state())
    still = dataclasses.replace(drawn, params=dataclasses.replace(drawn.params, jitter=()), sharp=True)
    torch.testing.assert_close(still(images), images, rtol=0, atol=1e-5)
