"""Quantized weights, borders and bands."""

import pytest
import torch

from driftlaw.corruptions.linear import (
    apply_bands,
    apply_separable,
    clamp_index,
    correlate,
    gaussian_filter,
    mirror_pad,
    quantize_rows,
    reflect_index,
    sliding_windows,
    split_into_bands,
    zoom_matrix,
)


def whole_images(*shape):
    return torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(0)).float()


def test_quantized_rows_keep_their_sum():
    weights = torch.rand(50, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).softmax(1)
    snapped = quantize_rows(weights)
    assert torch.equal(snapped * 2**16, (snapped * 2**16).round())
    assert torch.equal(snapped.sum(1), torch.ones(50, dtype=torch.float64))
    assert (snapped - weights).abs().max() < 1e-4


def test_a_sum_of_quantized_weights_does_not_depend_on_its_order():
    images, rows = whole_images(3, 3, 32, 32), quantize_rows(torch.rand(32, 32, dtype=torch.float64).softmax(1))
    order = torch.randperm(32)
    assert torch.equal(
        apply_separable(images, rows, rows), apply_separable(images[..., order, :], rows[:, order], rows)
    )


@pytest.mark.parametrize(
    ("border", "expected"),
    [
        (reflect_index, [2, 1, 0, 0, 1, 2, 2, 1]),
        (clamp_index, [0, 0, 0, 0, 1, 2, 2, 2]),
    ],
)
def test_border_modes_fold_indices(border, expected):
    indices = torch.arange(-3, 5)
    assert border(indices, 3).tolist() == expected


def test_one_pixel_is_its_own_mirror():
    assert mirror_pad(torch.zeros(1, 1), 3, 3).shape == (7, 7)


def test_padding_is_mirrored_about_the_centres_of_edge_pixels():
    assert mirror_pad(torch.tensor([[0, 1, 2]]), 0, 3)[0].tolist() == [1, 2, 1, 0, 1, 2, 1, 0, 1]


def test_a_blur_does_not_change_a_flat_image():
    flat = torch.full((1, 3, 20, 31), 77.0)
    assert torch.equal(gaussian_filter(flat, 1.3), flat.double())


def test_bands_of_a_correlation_equal_the_correlation():
    images, kernel = whole_images(2, 3, 13, 9), torch.rand(5, 5, dtype=torch.float64)
    impulses = torch.eye(13 * 9, dtype=torch.float64).view(-1, 13, 9)
    bands = split_into_bands(correlate(impulses, kernel).flatten(1).mT.contiguous(), 13, 9, images.device)
    torch.testing.assert_close(apply_bands(images, bands), correlate(images, kernel))


def test_a_zoom_by_one_changes_nothing():
    assert torch.equal(zoom_matrix(32, 1.0), torch.eye(32, dtype=torch.float64))


def test_windows_are_a_view_of_all_runs():
    flat = torch.arange(6)
    assert sliding_windows(flat, 3).tolist() == [[0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5]]
    assert sliding_windows(flat, 3).data_ptr() == flat.data_ptr()
