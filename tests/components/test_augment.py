"""The batched augmentation against the one written pixel by pixel."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from driftlaw.components.augment import JITTER_RANGES, AugmentParams, augment
from tests.reference.augmentation import reference_augment


def some_images(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("size", [(16, 16), (16, 24)])
def test_it_equals_the_pipeline_written_pixel_by_pixel(seed, size):
    images = some_images(2, 3, *size)
    draw = AugmentParams.from_generator(torch.Generator().manual_seed(seed))
    noise = torch.randn(images.shape, generator=torch.Generator().manual_seed(draw.noise_seed), dtype=torch.float64)
    by_hand = reference_augment(images.numpy(), draw, noise.numpy())
    np.testing.assert_allclose(augment(images, draw).numpy(), by_hand, atol=1e-10)


def test_draws_stay_in_their_ranges_and_every_order_occurs():
    generator = torch.Generator().manual_seed(1)
    draws = [AugmentParams.from_generator(generator) for _ in range(400)]
    for draw in draws:
        assert sorted(name for name, _ in draw.jitter) == sorted(JITTER_RANGES)
        assert all(JITTER_RANGES[name][0] <= amount <= JITTER_RANGES[name][1] for name, amount in draw.jitter)
        assert abs(draw.degrees) <= 15
        assert max(map(abs, draw.shift)) <= 1 / 16
        assert 0.9 <= draw.scale <= 1.1
        assert 0.001 <= draw.sigma <= 0.5
    assert 120 < sum(draw.flip for draw in draws) < 280
    assert len({tuple(name for name, _ in draw.jitter) for draw in draws}) > 100


def test_the_same_generator_state_gives_the_same_bits():
    images = some_images(3, 3, 16, 16)
    first, second = (augment(images, AugmentParams.from_generator(torch.Generator().manual_seed(4))) for _ in range(2))
    assert torch.equal(first, second)


def test_one_draw_serves_the_whole_batch_and_the_input_stays_as_it_was():
    images = some_images(4, 3, 16, 16)
    before = images.clone()
    draw = AugmentParams.from_generator(torch.Generator().manual_seed(4))
    noise_free = augment(images, draw) - augment(images.flip(0), draw).flip(0)
    assert noise_free.abs().max() < 0.05  # they differ by the noise alone
    assert torch.equal(images, before)


def test_grey_images_keep_their_one_channel():
    images = some_images(2, 1, 16, 16)
    augmented = augment(images, AugmentParams.from_generator(torch.Generator().manual_seed(4)))
    assert augmented.shape == images.shape
    assert not torch.equal(augmented, images)
