"""Default settings that fit the network."""

import math

import pytest
from torch import nn

from driftlaw.methods.law_defaults import default_settings, value_for_classes

PUBLISHED = {10: 1e-3, 100: 5e-5, 1000: 2e-4}


@pytest.mark.parametrize(
    ("classes", "expected"),
    [(1, 1e-3), (10, 1e-3), (100, 5e-5), (1000, 2e-4), (21_841, 2e-4), (32, 1e-3 * 0.05 ** math.log10(3.2))],
)
def test_published_values_are_kept_and_interpolated(classes, expected):
    assert value_for_classes(PUBLISHED, classes) == pytest.approx(expected, rel=1e-12)


def test_without_batch_norm_the_rate_is_relative_to_the_weights():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10))
    for layer in (model[0], model[3]):
        nn.init.constant_(layer.weight, 0.02)
    assert default_settings(model)["learning_rate"] == pytest.approx(2e-5)
    model.insert(1, nn.BatchNorm2d(4))
    assert default_settings(model)["learning_rate"] == 1e-3
