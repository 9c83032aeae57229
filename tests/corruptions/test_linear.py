"""Weights on a grid, borders, bands."""

import pytest
import torch

from driftlaw.corruptions.linear import (
    banded,
    bands_of,
    correlation_matrix,
    exact,
    filtered,
    gaussian,
    mirrored,
    reflected,
    repeated,
    sandwich,
    windows,
    zoom_rows,
)


def whole_images(*shape):
    return torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(0)).float()


def test_exact_weights_lie_on_the_grid_and_keep_their_sum():
    weights = torch.rand(50, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).softmax(1)
    snapped = exact(weights)
    assert torch.equal(snapped * 2**16, (snapped * 2**16).round())
    assert torch.equal(snapped.sum(1), torch.ones(50, dtype=torch.float64))
    assert (snapped - weights).abs().max() < 1e-4


def test_a_sum_of_exact_weights_does_not_depend_on_its_order():
    images, rows = whole_images(3, 3, 32, 32), exact(torch.rand(32, 32, dtype=torch.float64).softmax(1))
    order = torch.randperm(32)
    assert torch.equal(sandwich(images, rows, rows), sandwich(images[..., order, :], rows[:, order], rows))


@pytest.mark.parametrize(
    ("border", "expected"),
    [(mirrored, [1, 2, 1, 0, 1, 2, 1, 0]), (reflected, [2, 1, 0, 0, 1, 2, 2, 1]), (repeated, [0, 0, 0, 0, 1, 2, 2, 2])],
)
def test_borders_fold_indices_as_drawn(border, expected):
    places = torch.arange(-3, 5)
    assert border(places, 3).tolist() == expected


def test_one_pixel_is_its_own_mirror():
    assert mirrored(torch.arange(-3, 4), 1).tolist() == [0] * 7


def test_a_blur_leaves_a_flat_image_alone():
    flat = torch.full((1, 3, 20, 31), 77.0)
    assert torch.equal(gaussian(flat, 1.3), flat.double())


def test_bands_of_a_correlation_equal_the_correlation():
    images, kernel = whole_images(2, 3, 13, 9), torch.rand(5, 5, dtype=torch.float64)
    bands = bands_of(correlation_matrix(kernel, 13, 9), 13, 9, images.device)
    torch.testing.assert_close(banded(images, bands), filtered(images, kernel))


def test_a_zoom_by_one_changes_nothing():
    assert torch.equal(zoom_rows(32, 1.0), torch.eye(32, dtype=torch.float64))


def test_windows_are_a_view_of_all_runs():
    flat = torch.arange(6)
    assert windows(flat, 3).tolist() == [[0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5]]
    assert windows(flat, 3).data_ptr() == flat.data_ptr()
