"""Random crops and flips."""

import pytest
import torch

from benchmarks.train.augment import crop_and_flip
from tests.reference import crop_and_flip as reference


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def sample(count, height=6, width=6, dtype=torch.uint8):
    return torch.randint(1, 255, (count, 3, height, width), generator=generator(9)).to(dtype)


@pytest.mark.parametrize(("height", "width", "padding", "flip"), [(6, 6, 2, True), (5, 7, 1, True), (6, 4, 3, False)])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_the_batched_version_equals_the_reference(height, width, padding, flip, dtype):
    images = sample(12, height, width, dtype)
    result = crop_and_flip(images, generator(4), padding=padding, flip=flip)
    same = generator(4)
    tops, lefts = torch.randint(2 * padding + 1, (2, 12, 1), generator=same)
    mirrored = torch.rand(12, generator=same) < 0.5 if flip else torch.zeros(12, dtype=torch.bool)
    assert result.dtype == dtype
    assert torch.equal(result, reference.crop_and_flip(images, tops, lefts, mirrored, padding))


def test_every_position_and_both_orientations_are_equally_likely():
    image = sample(1)
    padding, count = 2, 5000
    crops = crop_and_flip(image.expand(count, -1, -1, -1), generator(), padding=padding, flip=True)
    counts = dict.fromkeys(range(50), 0)
    outcomes = [(top, left, mirror) for top in range(5) for left in range(5) for mirror in (False, True)]
    for number, (top, left, mirror) in enumerate(outcomes):
        expected = reference.crop_and_flip(image, [top], [left], [mirror], padding)
        counts[number] = int((crops == expected).flatten(1).all(1).sum())
    assert sum(counts.values()) == count
    assert min(counts.values()) > 60
    assert max(counts.values()) < 150


def test_images_stay_without_padding_and_flip():
    images = sample(5)
    assert torch.equal(crop_and_flip(images, generator(), padding=0, flip=False), images)


def test_only_the_generator_determines_the_result_and_the_input_stays():
    images = sample(8)
    before = images.clone()
    torch.manual_seed(1)
    one = crop_and_flip(images, generator(3), padding=2, flip=True)
    torch.manual_seed(2)
    assert torch.equal(crop_and_flip(images, generator(3), padding=2, flip=True), one)
    assert not torch.equal(crop_and_flip(images, generator(4), padding=2, flip=True), one)
    assert torch.equal(images, before)
