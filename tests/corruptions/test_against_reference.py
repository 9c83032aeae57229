"""Every corruption compared with its reference implementation per image, with the same random numbers."""

import numpy as np
import pytest
import torch

from driftlaw.corruptions import corrupt, find_corruption, list_corruptions
from driftlaw.corruptions.rng import CounterRNG
from driftlaw.datasets import load_dataset
from tests.reference.corruptions import ImageRng, corrupt_unrounded
from tests.reference.corruptions import corrupt as reference_corrupt

# Sampled by another algorithm in the reference, so that only their statistics are compared.
BY_STATISTICS = ["shot_noise", "impulse_noise"]
PIXEL_BY_PIXEL = [name for name in list_corruptions("all") if name not in BY_STATISTICS]


class CounterImageRng(ImageRng):
    """Random numbers that CounterRNG gives to one image."""

    def __init__(self, name, severity, index):
        self.rng = CounterRNG(0, name, severity, torch.tensor([index]))
        self.words_by_purpose = {}

    def normal(self, purpose, shape):
        return self._shaped(self.rng.normal(purpose, int(np.prod(shape))), shape)

    def uniform(self, purpose, shape):
        return self._shaped(self.rng.uniform(purpose, int(np.prod(shape))), shape)

    def randint(self, purpose, limit):
        return int(self.rng.randint(purpose, torch.tensor(limit)))

    def angle(self, purpose, low, high):
        return low + (high - low) * (int(self.rng.words(purpose, 1, torch.int16)) + 2**15 + 0.5) / 2**16

    def offset(self, purpose, pixel, shape, reach):
        if purpose not in self.words_by_purpose:
            words = self.rng.words(purpose, 2 * shape[0] * shape[1], torch.int16).numpy().astype(np.int64)
            self.words_by_purpose[purpose] = (words.reshape(2, *shape) + 2**15) * 2 * reach // 2**16 - reach
        return self.words_by_purpose[purpose][:, pixel[0], pixel[1]]

    @staticmethod
    def _shaped(values, shape):
        values = values.numpy().astype(np.float64)
        return values.reshape(shape[2], *shape[:2]).transpose(1, 2, 0) if shape[2:] == (3,) else values.reshape(shape)


@pytest.fixture(scope="module")
def images():
    return load_dataset("cifar10-embedded").images(np.arange(60))


def as_batch(images):
    return torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))


def as_images(batch):
    return batch.permute(0, 2, 3, 1).numpy()


def reference(images, name, severity, make_rng, function=reference_corrupt):
    parameters = find_corruption(name).parameters(severity, *images.shape[1:3])
    return np.stack([function(image, name, parameters, make_rng(i)) for i, image in enumerate(images)])


def assert_equals_the_definition(images, name, severity):
    """Values agree closely before they are rounded to whole gray levels; rounded values may differ by one."""
    batch = as_batch(images)
    expected = reference(images, name, severity, lambda i: CounterImageRng(name, severity, i), corrupt_unrounded)
    difference = np.abs(as_images(corrupt(batch.double() / 255, name, severity, encoding="none")) * 255 - expected)
    assert difference.mean() < 0.03
    assert np.quantile(difference, 0.99) < 0.15
    assert np.quantile(difference, 0.999) < 1.02
    rounded = np.abs(as_images(corrupt(batch, name, severity, encoding="none")) - expected)
    assert np.quantile(rounded, 0.998) < 1.02


@pytest.mark.parametrize("severity", [1, 3, 4, 5])
@pytest.mark.parametrize("name", PIXEL_BY_PIXEL)
def test_small_images_equal_the_definition(name, severity, images):
    assert_equals_the_definition(images[:4], name, severity)


@pytest.mark.parametrize("severity", [2, 5])
@pytest.mark.parametrize("name", PIXEL_BY_PIXEL)
def test_a_large_image_that_is_not_square_equals_the_definition(name, severity, images):
    small = torch.from_numpy(images[:1].transpose(0, 3, 1, 2).astype(np.float32))
    large = torch.nn.functional.interpolate(small, size=(70, 96), mode="bicubic").clamp(0, 255).to(torch.uint8)
    assert_equals_the_definition(as_images(large), name, severity)


@pytest.mark.parametrize("severity", [1, 5])
@pytest.mark.parametrize("name", BY_STATISTICS)
def test_counted_noise_has_the_statistics_of_the_definition(name, severity, images):
    actual = as_images(corrupt(as_batch(images), name, severity)).astype(float)
    expected = reference(images, name, severity, ImageRng).astype(float)
    assert actual.mean() == pytest.approx(expected.mean(), abs=0.25)
    assert actual.std() == pytest.approx(expected.std(), rel=0.01)
    assert (actual - images).std() == pytest.approx((expected - images).std(), rel=0.03)
    assert np.abs(np.diff(actual, axis=2)).mean() == pytest.approx(np.abs(np.diff(expected, axis=2)).mean(), rel=0.02)
