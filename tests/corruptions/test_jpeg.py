"""JPEG compression compared with libjpeg."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from driftlaw.corruptions.jpeg import jpeg_compression
from driftlaw.corruptions.rng import CounterRNG
from driftlaw.datasets import load_dataset


def decoded(image, quality):
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(file))


@pytest.mark.parametrize("size", [(32, 32), (47, 61), (96, 80)])
@pytest.mark.parametrize("quality", [7, 25, 50, 80, 85])
def test_pixels_equal_those_of_libjpeg(quality, size):
    clean = load_dataset("cifar10-embedded").images(np.arange(8))
    resized = np.stack([np.asarray(Image.fromarray(one).resize(size[::-1])) for one in clean])
    images = torch.from_numpy(np.ascontiguousarray(resized.transpose(0, 3, 1, 2))).float()
    result = jpeg_compression(images, (quality,), CounterRNG(0, "jpeg_compression", 1, torch.arange(8)))
    expected = np.stack([decoded(image, quality) for image in resized])
    # libjpeg-turbo gives the same bits; another libjpeg may round differently.
    assert np.abs(result.permute(0, 2, 3, 1).numpy() - expected).mean() < 0.3
