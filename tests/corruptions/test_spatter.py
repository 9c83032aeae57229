"""Spatter: distances, water and mud."""

import pytest
import torch

from driftlaw.corruptions import corrupt
from driftlaw.corruptions.spatter import _distance_transform


def test_distances_are_counted_in_steps_of_the_mask():
    edges = torch.zeros(1, 1, 9, 40, dtype=torch.bool)
    edges[0, 0, 4, 3] = True
    distances = _distance_transform(edges)[0, 0]
    assert distances[4, 3] == 0
    assert distances[4, 6] == 3
    torch.testing.assert_close(distances[5, 4], torch.tensor(1.4))
    torch.testing.assert_close(distances[6, 4], torch.tensor(2.1969))
    assert distances[4, 39] == 20


def test_water_brightens_and_mud_darkens_white_images():
    white = torch.full((4, 3, 32, 32), 255, dtype=torch.uint8)
    black = torch.zeros_like(white)
    assert corrupt(black, "spatter", 3).max() > 0
    assert corrupt(white, "spatter", 5).min() < 100


def test_mud_is_brown():
    covered = corrupt(torch.zeros(50, 3, 32, 32, dtype=torch.uint8), "spatter", 5)
    assert covered.amax((0, 2, 3)).tolist() == pytest.approx([63, 42, 20], abs=1)
