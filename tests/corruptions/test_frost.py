"""Photographs of frost and their crops."""

import numpy as np
import pytest
import torch

from driftlaw.corruptions import corrupt, frost


@pytest.fixture(autouse=True)
def _fresh_tables():
    frost._photograph_table.cache_clear()
    yield
    frost._photograph_table.cache_clear()


def test_the_package_has_five_small_photographs():
    sizes = [photograph.shape for photograph in frost.photographs(full_size=False)]
    assert sizes == [(120, 180, 3), (63, 112, 3), (63, 112, 3), (70, 105, 3), (99, 132, 3)]


def test_a_crop_is_a_piece_of_one_photograph():
    black = torch.zeros(5, 3, 6, 6, dtype=torch.uint8)
    cuts = corrupt(black, "frost", 2)
    for cut in cuts.permute(0, 2, 3, 1).numpy():
        assert any(
            _contains(np.uint8(photograph * np.float32(0.3)), cut) for photograph in frost.photographs(full_size=False)
        )


def _contains(photograph, cut):
    views = np.lib.stride_tricks.sliding_window_view(photograph, cut.shape)
    near = np.abs(views.astype(np.int16) - cut) <= 1
    return near.all(axis=(-1, -2, -3)).any()


def test_small_photographs_are_every_fifth_pixel_of_those_in_full_size():
    originals = frost.photographs(full_size=True)
    assert [photograph.shape for photograph in originals] == [
        *((600, 900, 3), (315, 560, 3), (315, 560, 3), (350, 527, 3), (495, 660, 3))
    ]
    for original, small in zip(originals, frost.photographs(full_size=False), strict=True):
        np.testing.assert_array_equal(original[2::5, 2::5], small)


def test_a_large_image_is_covered_by_a_piece_of_a_photograph_in_full_size():
    black = torch.zeros(3, 3, 66, 66, dtype=torch.uint8)
    for cut in corrupt(black, "frost", 1, encoding="none").permute(0, 2, 3, 1).numpy():
        part = cut[:6, :6]
        assert any(_contains(np.uint8(each * np.float32(0.4)), part) for each in frost.photographs(full_size=True))


def test_an_image_larger_than_every_photograph_is_covered():
    black = torch.zeros(3, 3, 700, 1000, dtype=torch.uint8)
    assert corrupt(black, "frost", 1).amax((1, 2, 3)).min() > 0
