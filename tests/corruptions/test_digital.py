"""Resampling, saturation and warps in cases that can be checked by hand."""

import numpy as np
import pytest
import torch
from PIL import Image

from driftlaw.corruptions import corrupt
from driftlaw.corruptions.digital import box_matrix


@pytest.mark.parametrize(("source", "target"), [(32, 20), (20, 32), (32, 30), (224, 56), (7, 7), (5, 1)])
def test_box_weights_are_those_of_pillow(source, target):
    line = np.random.default_rng(0).integers(0, 256, source, dtype=np.uint8)
    expected = np.asarray(Image.fromarray(line[None]).resize((target, 1), Image.Resampling.BOX))[0]
    result = (box_matrix(source, target, torch.device("cpu")) @ torch.from_numpy(line).double() + 0.5).floor()
    assert result.tolist() == expected.tolist()


def test_contrast_keeps_the_mean_of_every_channel():
    images = torch.rand(2, 3, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(corrupt(images, "contrast", 3).mean((2, 3)), images.mean((2, 3)), atol=1e-5, rtol=0)


def test_a_gray_pixel_turns_red_when_saturation_is_added():
    gray = torch.full((1, 3, 1, 1), 0.5, dtype=torch.float64)
    red, green, blue = corrupt(gray, "saturate", 5).flatten().tolist()
    assert red == pytest.approx(128 / 255, abs=0.01)
    assert green == blue == pytest.approx(red * 0.8, abs=0.01)


def test_black_stays_black_and_white_stays_white_under_less_saturation():
    images = torch.cat([torch.zeros(1, 3, 4, 4), torch.ones(1, 3, 4, 4)])
    assert torch.equal(corrupt(images, "saturate", 1), images)
