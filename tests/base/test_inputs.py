"""Checks of the images that an adapter receives."""

import pytest
import torch

from driftlaw.errors import UsageError
from driftlaw.testing.fixtures import make_images
from driftlaw.testing.snapshots import differences, state_of


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (
            make_images()[0],
            r"shape \(3, 16, 16\): expected \(n, channels, height, width\); for a single image use images\[None\]",
        ),
        ((make_images() * 255).byte(), "divide uint8 images by 255"),
        (make_images() * 255, "expected .0, 1.; divide by 255"),
        (make_images() * 2 - 1, "leave the normalisation to the model"),
        (make_images() * torch.nan, "some pixels are NaN"),
        (make_images() * torch.inf, "expected .0, 1.|NaN"),
        (make_images()[:0], "the batch is empty"),
        (make_images()[:, :, :0], "the batch is empty"),
        (make_images().numpy(), "Expected a tensor of images, found ndarray. Convert it with torch.as_tensor"),
        (make_images().double(), "the model computes in torch.float32"),
        (make_images().half(), "the model computes in torch.float32"),
    ],
)
def test_wrong_images_are_refused_with_a_remedy(adapter, images, message):
    before = state_of(adapter)
    for call in (adapter, adapter.step, adapter.predict):
        with pytest.raises(UsageError, match=message):
            call(images)
    assert differences(before, state_of(adapter)) == []


def test_all_problems_are_listed(adapter):
    with pytest.raises(UsageError, match=r"(?s)shape \(3, 16, 16\).*dtype torch.uint8"):
        adapter((make_images()[0] * 255).byte())


def test_values_slightly_outside_are_accepted(adapter):
    adapter(make_images() * 1.0005)
