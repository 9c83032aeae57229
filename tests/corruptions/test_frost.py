"""Photographs of frost and their crops."""

import numpy as np
import pytest
import torch
from PIL import Image

from driftlaw.corruptions import corrupt, frost
from driftlaw.paths import data_dir


@pytest.fixture(autouse=True)
def _fresh_tables():
    frost._photograph_table.cache_clear()
    yield
    frost._photograph_table.cache_clear()


def test_the_package_has_five_small_photographs():
    sizes = [photograph.shape for photograph in frost.small_photographs()]
    assert sizes == [(120, 180, 3), (63, 112, 3), (63, 112, 3), (70, 105, 3), (99, 132, 3)]


def test_a_crop_is_a_piece_of_one_photograph():
    black = torch.zeros(5, 3, 6, 6, dtype=torch.uint8)
    cuts = corrupt(black, "frost", 2)
    for cut in cuts.permute(0, 2, 3, 1).numpy():
        assert any(_contains(np.uint8(photograph * np.float32(0.3)), cut) for photograph in frost.small_photographs())


def _contains(photograph, cut):
    views = np.lib.stride_tricks.sliding_window_view(photograph, cut.shape)
    near = np.abs(views.astype(np.int16) - cut) <= 1
    return near.all(axis=(-1, -2, -3)).any()


def test_large_photographs_in_the_data_folder_are_preferred():
    folder = data_dir() / "frost"
    folder.mkdir(parents=True)
    for name in frost._NAMES:
        Image.new("RGB", (300, 280), (10, 20, 30)).save(folder / name)
    black = torch.zeros(1, 3, 100, 100, dtype=torch.uint8)
    assert corrupt(black, "frost", 1).amax((0, 2, 3)).tolist() == [4, 8, 12]


def test_an_image_larger_than_every_photograph_is_covered():
    black = torch.zeros(3, 3, 700, 1000, dtype=torch.uint8)
    assert corrupt(black, "frost", 1).amax((1, 2, 3)).min() > 0
