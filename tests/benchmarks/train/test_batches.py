"""Batches of an epoch: order, augmentation, and augmentation for several steps at once."""

import pytest
import torch

from benchmarks.train import Recipe
from benchmarks.train.augment import crop_and_flip
from benchmarks.train.batches import AugmentedBatches, steps_per_chunk
from tests.benchmarks.train.synthetic import TRAIN

IMAGES = torch.from_numpy(TRAIN.images(range(48))).permute(0, 3, 1, 2)
LABELS = torch.from_numpy(TRAIN.labels)


def make_batches(**recipe):
    recipe = {"batch_size": 10, "crop_padding": 1} | recipe
    return AugmentedBatches(IMAGES, LABELS, Recipe(**recipe), torch.Generator().manual_seed(0))


def test_every_image_is_seen_once_per_epoch_in_a_new_order():
    batches = make_batches(crop_padding=0, flip=False)
    epochs = [torch.cat([images for images, _ in batches]) for _ in range(2)]
    for images in epochs:
        matches = (images[:, None] == IMAGES).flatten(2).all(2)
        assert matches.sum(0).tolist() == [1] * 48
    assert not torch.equal(epochs[0], epochs[1])


@pytest.mark.parametrize("augmentation", ["crop_flip", "augmix"])
@pytest.mark.parametrize("steps", [1, 2, 99])
def test_images_and_labels_belong_together(augmentation, steps):
    batches = make_batches(augmentation=augmentation)
    batches.steps_per_chunk = steps
    views = 3 if augmentation == "augmix" else 1
    sizes = []
    for images, labels in batches:
        sizes.append((len(images), len(labels)))
        pixels = images[: len(labels)].float()
        brighter_below = pixels[:, :, 8:].mean((1, 2, 3)) > pixels[:, :, :8].mean((1, 2, 3))
        assert torch.equal(brighter_below.long(), labels)
    assert sizes == [(10 * views, 10)] * 4 + [(8 * views, 8)]
    assert len(batches) == len(sizes)


def test_augmix_yields_the_image_and_two_mixtures_of_the_same_crop():
    batches = make_batches(augmentation="augmix")
    before = batches.generator.get_state()
    steps = list(batches.views((torch.arange(5), torch.arange(5, 8))))
    assert [step.shape for step in steps] == [(15, 3, 16, 16), (9, 3, 16, 16)]
    batches.generator.set_state(before)
    cropped = crop_and_flip(IMAGES[:8], batches.generator, padding=1, flip=True)
    for views, expected in zip(steps, cropped.split((5, 3)), strict=True):
        clean, first, second = views.split(len(expected))
        assert torch.equal(clean, expected.float() / 255)
        assert not torch.equal(first, clean)
        assert not torch.equal(first, second)


@pytest.mark.parametrize(
    ("recipe", "side", "steps"),
    [
        ({"augmentation": "augmix", "batch_size": 128}, 32, 32),
        ({"augmentation": "crop_flip", "batch_size": 128}, 32, 64),
        ({"augmentation": "augmix", "batch_size": 64}, 224, 1),
    ],
)
def test_a_gpu_augments_as_many_steps_at_once_as_the_image_size_allows(recipe, side, steps):
    assert steps_per_chunk(Recipe(**recipe), 3 * side * side) == steps
    assert make_batches(**recipe).steps_per_chunk == 1  # on a CPU
