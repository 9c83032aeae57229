"""Batched views against those made pixel by pixel; draws an image."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from driftlaw.components.views import JITTER, StrongAugmentParams, draw_flips, strong_view, weak_view
from tests.reference.views import NAMES, reference_strong_view


def some_images(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def a_draw(count: int, seed: int = 0) -> StrongAugmentParams:
    return StrongAugmentParams.from_generator(count, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("size", [(8, 8), (9, 5)])
def test_strong_views_equal_those_made_pixel_by_pixel(seed, size):
    images = some_images(12, 3, *size)
    draw = a_draw(12, seed)
    np.testing.assert_allclose(
        strong_view(images, draw).numpy(), reference_strong_view(images.numpy(), draw), atol=1e-10
    )


def test_the_operations_are_numbered_as_the_reference_numbers_them():
    assert tuple(JITTER) == NAMES


def test_shares_and_ranges_of_what_is_drawn():
    draw = a_draw(4000)
    shares = {"jittered": 0.8, "grayscale": 0.2, "blurred": 0.5, "flipped": 0.5}
    for name, share in shares.items():
        assert getattr(draw, name).double().mean() == pytest.approx(share, abs=0.03), name
    low, high = draw.amounts.amin(0), draw.amounts.amax(0)
    torch.testing.assert_close(low, torch.tensor([0.6, 0.6, 0.6, -0.1], dtype=torch.float64), rtol=0, atol=0.01)
    torch.testing.assert_close(high, torch.tensor([1.4, 1.4, 1.4, 0.1], dtype=torch.float64), rtol=0, atol=0.01)
    assert 0.1 <= draw.sigmas.min() < 0.11
    assert 1.99 < draw.sigmas.max() <= 2
    assert len({tuple(order) for order in draw.order.tolist()}) == 24


def test_images_have_draws_of_their_own():
    images = some_images(1, 3, 8, 8).expand(16, -1, -1, -1)
    views = strong_view(images, a_draw(16))
    assert len({view.numpy().tobytes() for view in views}) > 12


def test_a_view_does_not_depend_on_the_other_images_of_the_batch():
    images, draw = some_images(6, 3, 8, 8), a_draw(6)
    alone = {field.name: getattr(draw, field.name)[2:4] for field in dataclasses.fields(draw)}
    torch.testing.assert_close(strong_view(images[2:4], StrongAugmentParams(**alone)), strong_view(images, draw)[2:4])


def test_the_same_generator_state_gives_the_same_bits_and_the_next_draw_differs():
    images = some_images(4, 3, 8, 8)
    generator = torch.Generator().manual_seed(3)
    first = strong_view(images, StrongAugmentParams.from_generator(4, generator))
    second = strong_view(images, StrongAugmentParams.from_generator(4, generator))
    assert torch.equal(first, strong_view(images, a_draw(4, 3)))
    assert not torch.equal(first, second)


def test_weak_views_are_flipped_or_not_and_the_input_stays_as_it_was():
    images = some_images(20, 3, 4, 4)
    before = images.clone()
    flipped = draw_flips(20, torch.Generator().manual_seed(1))
    view = weak_view(images, flipped)
    strong_view(images, a_draw(20))
    assert 4 < flipped.sum() < 16
    assert torch.equal(view[flipped], images[flipped].flip(3))
    assert torch.equal(view[~flipped], images[~flipped])
    assert torch.equal(images, before)


def test_strong_views_stay_in_range_in_float32_and_channels_last():
    images = torch.rand(32, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    plain = strong_view(images, a_draw(32))
    strided = strong_view(images.contiguous(memory_format=torch.channels_last), a_draw(32))
    assert plain.dtype == torch.float32
    assert 0 <= plain.min() <= plain.max() <= 1 + 1e-6
    torch.testing.assert_close(strided, plain)


def test_grey_images_keep_their_one_channel():
    images = some_images(8, 1, 8, 8)
    assert strong_view(images, a_draw(8)).shape == images.shape


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_is_never_waited_for_and_gives_the_same():
    images = some_images(16, 3, 16, 16)
    there = images.cuda()
    strong_view(there, a_draw(16))
    torch.cuda.set_sync_debug_mode("error")
    try:
        view = strong_view(there, a_draw(16))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.testing.assert_close(view.cpu(), strong_view(images, a_draw(16)))
