"""Weak and strong views compared with a pixel-by-pixel implementation."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from driftlaw.components.views import JITTER, StrongAugmentParams, draw_flips, shuffle_patches, strong_view, weak_view
from tests.reference.views import NAMES, reference_strong_view


def random_images(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def random_params(count: int, seed: int = 0) -> StrongAugmentParams:
    return StrongAugmentParams.from_generator(count, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("size", [(8, 8), (9, 5)])
def test_strong_views_equal_the_pixel_by_pixel_implementation(seed, size):
    images = random_images(12, 3, *size)
    params = random_params(12, seed)
    np.testing.assert_allclose(
        strong_view(images, params).numpy(), reference_strong_view(images.numpy(), params), atol=1e-10
    )


def test_jitter_operations_have_the_order_of_the_reference():
    assert tuple(JITTER) == NAMES


def test_parameters_have_the_expected_frequencies_and_ranges():
    params = random_params(4000)
    shares = {"jittered": 0.8, "grayscale": 0.2, "blurred": 0.5, "flipped": 0.5}
    for name, share in shares.items():
        assert getattr(params, name).double().mean() == pytest.approx(share, abs=0.03), name
    low, high = params.amounts.amin(0), params.amounts.amax(0)
    torch.testing.assert_close(low, torch.tensor([0.6, 0.6, 0.6, -0.1], dtype=torch.float64), rtol=0, atol=0.01)
    torch.testing.assert_close(high, torch.tensor([1.4, 1.4, 1.4, 0.1], dtype=torch.float64), rtol=0, atol=0.01)
    assert 0.1 <= params.sigmas.min() < 0.11
    assert 1.99 < params.sigmas.max() <= 2
    assert len({tuple(order) for order in params.order.tolist()}) == 24


def test_every_image_has_its_own_parameters():
    images = random_images(1, 3, 8, 8).expand(16, -1, -1, -1)
    views = strong_view(images, random_params(16))
    assert len({view.numpy().tobytes() for view in views}) > 12


def test_a_view_does_not_depend_on_the_other_images_of_the_batch():
    images, params = random_images(6, 3, 8, 8), random_params(6)
    alone = {field.name: getattr(params, field.name)[2:4] for field in dataclasses.fields(params)}
    torch.testing.assert_close(strong_view(images[2:4], StrongAugmentParams(**alone)), strong_view(images, params)[2:4])


def test_the_same_generator_state_gives_the_same_bits_and_the_next_one_differs():
    images = random_images(4, 3, 8, 8)
    generator = torch.Generator().manual_seed(3)
    first = strong_view(images, StrongAugmentParams.from_generator(4, generator))
    second = strong_view(images, StrongAugmentParams.from_generator(4, generator))
    assert torch.equal(first, strong_view(images, random_params(4, 3)))
    assert not torch.equal(first, second)


def test_weak_views_are_flipped_or_not_and_the_input_is_not_changed():
    images = random_images(20, 3, 4, 4)
    before = images.clone()
    flipped = draw_flips(20, torch.Generator().manual_seed(1))
    view = weak_view(images, flipped)
    strong_view(images, random_params(20))
    assert 4 < flipped.sum() < 16
    assert torch.equal(view[flipped], images[flipped].flip(3))
    assert torch.equal(view[~flipped], images[~flipped])
    assert torch.equal(images, before)


def test_strong_views_stay_in_range_in_float32_and_channels_last():
    images = torch.rand(32, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    plain = strong_view(images, random_params(32))
    strided = strong_view(images.contiguous(memory_format=torch.channels_last), random_params(32))
    assert plain.dtype == torch.float32
    assert 0 <= plain.min() <= plain.max() <= 1 + 1e-6
    torch.testing.assert_close(strided, plain)


def test_images_with_one_channel_keep_their_color():
    images, params = random_images(8, 1, 8, 8), random_params(8)
    gray = dataclasses.replace(params, order=torch.zeros_like(params.order))  # brightness alone
    expected = strong_view(images.expand(-1, 3, -1, -1), gray)[:, :1]
    torch.testing.assert_close(strong_view(images, gray), expected, rtol=2e-4, atol=0)  # luma weights sum to 0.9999


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_host_never_waits_for_a_gpu():
    images = random_images(16, 3, 16, 16)
    on_gpu = images.cuda()
    strong_view(on_gpu, random_params(16))
    torch.cuda.set_sync_debug_mode("error")
    try:
        view = strong_view(on_gpu, random_params(16))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.testing.assert_close(view.cpu(), strong_view(images, random_params(16)))


def test_patches_are_permuted_independently_for_each_image():
    images = random_images(3, 2, 8, 12)
    order = torch.stack([torch.randperm(16, generator=torch.Generator().manual_seed(seed)) for seed in range(3)])
    result = shuffle_patches(images, order, 4)
    for image, permutation, shuffled in zip(images, order.tolist(), result, strict=True):
        cells = [image[:, 2 * row : 2 * row + 2, 3 * col : 3 * col + 3] for row in range(4) for col in range(4)]
        for target, source in enumerate(permutation):
            row, column = divmod(target, 4)
            cell = shuffled[:, 2 * row : 2 * row + 2, 3 * column : 3 * column + 3]
            assert torch.equal(cell, cells[source])


def test_images_whose_size_is_no_multiple_of_the_patches_are_resized_and_keep_their_size():
    images = torch.full((2, 3, 14, 3), 0.5)
    result = shuffle_patches(images, torch.arange(16).flip(0).expand(2, -1), 4)
    torch.testing.assert_close(result, images)
