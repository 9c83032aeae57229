"""Models for the tests of the base package."""

from torch import nn


def small_model(channels=4):
    return nn.Sequential(
        nn.Conv2d(3, channels, 3), nn.BatchNorm2d(channels), nn.Flatten(), nn.Linear(channels * 196, 4)
    )
