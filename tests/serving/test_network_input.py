"""Input of a network: its size, and images of other sizes."""

import numpy as np
import pytest
from PIL import Image
from torch import nn

import driftlaw
from driftlaw.errors import UsageError
from driftlaw.serving.network_input import NetworkInput, choose_input


@pytest.mark.parametrize(("width", "height", "size"), [(8, 8, 8), (20, 10, 8), (300, 500, 224)])
def test_images_are_cropped_to_the_center(width, height, size):
    image = Image.new("RGB", (width, height), "black")
    image.paste("white", (width // 4, height // 4, width - width // 4, height - height // 4))
    fitted = np.asarray(NetworkInput(size, size).fit(image))
    assert fitted.shape == (size, size, 3)
    assert fitted[size // 2, size // 2].tolist() == [255, 255, 255]


def test_images_are_resized_without_a_crop_for_a_class_per_pixel():
    image = Image.fromarray(np.repeat(np.arange(0, 160, 10, dtype=np.uint8)[:, None, None], 3, 2).repeat(9, 1))
    fitted = np.asarray(NetworkInput(8, 6, is_dense=True).fit(image))
    assert fitted.shape == (8, 6, 3)
    assert fitted[[0, -1], 0, 0].tolist() == pytest.approx([8, 142], abs=4)  # first and last rows


def test_size_is_that_of_the_training_dataset_or_the_given_one():
    model = driftlaw.load_model("fpn_wrn_10_1-shapes")
    adapter = driftlaw.adapt(model, "source")
    assert choose_input(adapter, model, None) == (32, 48, True)
    assert choose_input(adapter, model, (30, 40)) == (30, 40, True)


def test_unknown_size_and_too_many_classes_are_errors():
    model = nn.Conv2d(3, 2, 1)
    with pytest.raises(UsageError, match="--image-size 360x480"):
        choose_input(driftlaw.adapt(model, "source"), model, None)
    many = nn.Conv2d(3, 256, 1)
    with pytest.raises(UsageError, match="256 classes"):
        choose_input(driftlaw.adapt(many, "source"), many, (2, 2))
