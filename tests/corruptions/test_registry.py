"""Names, order and parameters of the corruptions."""

import subprocess
import sys

import pytest

from driftlaw.corruptions import CORRUPTIONS, find_corruption, is_large, list_corruptions
from driftlaw.errors import UsageError

ORDER = [
    *("gaussian_noise", "shot_noise", "impulse_noise"),
    *("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    *("snow", "frost", "fog", "brightness"),
    *("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
]
HELD_OUT = ["speckle_noise", "gaussian_blur", "spatter", "saturate"]


def test_the_benchmark_is_in_its_published_order():
    assert list_corruptions() == ORDER
    assert list_corruptions("held_out") == HELD_OUT
    assert list_corruptions("all") == ORDER + HELD_OUT


def test_every_corruption_has_five_severities_in_two_sizes_with_a_value_per_parameter():
    for corruption in CORRUPTIONS:
        assert len(corruption.small) == len(corruption.large) == 5
        assert {len(row) for row in corruption.small + corruption.large} == {len(corruption.parameter_names)}


@pytest.mark.parametrize(
    ("name", "severity", "small", "large"),
    [
        ("gaussian_noise", 5, (0.10,), (0.38,)),
        ("shot_noise", 1, (500,), (60,)),
        ("impulse_noise", 4, (0.05,), (0.17,)),
        ("defocus_blur", 5, (1.5, 0.1), (10, 0.5)),
        ("glass_blur", 4, (0.25, 1, 2), (1.1, 3, 2)),
        ("motion_blur", 5, (9, 2.5), (20, 15)),
        ("snow", 3, (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9), (0.55, 0.3, 4, 0.9, 12, 8, 0.7)),
        ("frost", 5, (0.75, 0.45), (0.6, 0.75)),
        ("fog", 5, (1.5, 1.75), (3, 1.4)),
        ("brightness", 2, (0.1,), (0.2,)),
        ("contrast", 5, (0.15,), (0.05,)),
        ("pixelate", 5, (0.65,), (0.25,)),
        ("jpeg_compression", 3, (58,), (15,)),
        ("speckle_noise", 5, (0.2,), (0.6,)),
        ("gaussian_blur", 5, (1,), (6,)),
        ("saturate", 5, (2.5, 0.2), (20, 0.2)),
    ],
)
def test_parameters_are_the_published_ones(name, severity, small, large):
    corruption = find_corruption(name)
    assert corruption.parameters(severity, 32, 32) == small
    assert corruption.parameters(severity, 224, 224) == large


def test_elastic_parameters_are_in_pixels():
    assert find_corruption("elastic_transform").parameters(2, 32, 32) == pytest.approx((1.6, 6.4, 2.24))
    assert find_corruption("elastic_transform").parameters(1, 224, 224) == pytest.approx((488, 170.8, 24.4))


def test_images_up_to_64_pixels_are_small():
    assert not is_large(64, 64)
    assert is_large(65, 10)


def test_an_unknown_name_gets_a_suggestion():
    with pytest.raises(UsageError, match="Did you mean 'fog'"):
        find_corruption("fogg")
    with pytest.raises(UsageError, match="held_out"):
        list_corruptions("heldout")


def test_listing_needs_no_torch():
    code = "import sys, driftlaw.corruptions as c; c.list_corruptions('all'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
