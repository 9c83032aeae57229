"""Default settings that fit the network."""

import math

import pytest
import torch

from driftlaw.components.defaults import root_mean_square, value_for_classes

PUBLISHED = {10: 1e-3, 100: 5e-5, 1000: 2e-4}


@pytest.mark.parametrize(
    ("classes", "expected"),
    [(1, 1e-3), (10, 1e-3), (100, 5e-5), (1000, 2e-4), (21_841, 2e-4), (32, 1e-3 * 0.05 ** math.log10(3.2))],
)
def test_published_values_are_kept_and_interpolated(classes, expected):
    assert value_for_classes(PUBLISHED, classes) == pytest.approx(expected, rel=1e-12)


def test_root_mean_square_is_over_all_entries():
    assert root_mean_square([torch.full((3,), 2.0), torch.zeros(1)]) == pytest.approx(math.sqrt(3))
    assert root_mean_square([]) == 0
