"""Batches and hashes of training data."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch

import driftlaw
from driftlaw.components.train_data import TrainData
from driftlaw.datasets import ArrayImages
from driftlaw.errors import UsageError
from driftlaw.testing.fixtures import CLASSES, SyntheticDataset, tiny_model

LIKE = torch.empty(5, 3, 16, 16, dtype=torch.float64)


@pytest.fixture
def images() -> ArrayImages:
    """Twenty images, all pixels of image i are i."""
    pixels = np.broadcast_to(np.arange(20, dtype=np.uint8)[:, None, None, None], (20, 16, 16, 3)).copy()
    return ArrayImages("numbered", pixels, np.arange(20) % 4, ["a", "b", "c", "d"])


def image_numbers(batch: torch.Tensor) -> list[int]:
    return (batch[:, 0, 0, 0] * 255).round().int().tolist()


def test_a_drawn_batch_has_the_size_of_the_test_batch_and_its_own_labels(images):
    drawn, labels = TrainData(images).draw(LIKE, torch.Generator().manual_seed(1))
    assert drawn.shape == LIKE.shape
    assert drawn.dtype == LIKE.dtype
    assert labels.tolist() == [number % 4 for number in image_numbers(drawn)]


def test_the_generator_determines_the_drawn_images(images):
    data = TrainData(images)
    first, second = (image_numbers(data.draw(LIKE, torch.Generator().manual_seed(1))[0]) for _ in range(2))
    assert first == second
    generator = torch.Generator().manual_seed(1)
    assert image_numbers(data.draw(LIKE, generator)[0]) != image_numbers(data.draw(LIKE, generator)[0])


def test_batches_contain_every_image_once_and_drop_an_incomplete_last_batch(images):
    seen = [image_numbers(batch) for batch, _ in TrainData(images).batches(100, 8, seed=0, like=LIKE)]
    assert [len(batch) for batch in seen] == [8, 8]
    assert len({number for batch in seen for number in batch}) == 16
    (only,) = TrainData(images).batches(5, 8, seed=0, like=LIKE)
    assert len(only[0]) == 5


def test_pixels_are_divided_by_255_with_channels_first():
    pixels = np.zeros((1, 2, 3, 3), dtype=np.uint8)
    pixels[0, 1, 2] = (0, 51, 255)
    data = TrainData(ArrayImages("one", pixels, [0], ["a"]))
    drawn, _ = data.draw(torch.empty(1, 3, 2, 3), torch.Generator())
    torch.testing.assert_close(drawn[0, :, 1, 2], torch.tensor([0, 0.2, 1]))


def test_images_of_another_size_are_an_error(images):
    with pytest.raises(UsageError, match=r"shape \(3, 16, 16\), the test images have shape \(3, 8, 8\)"):
        TrainData(images).draw(torch.empty(2, 3, 8, 8), torch.Generator())


def test_copies_share_the_images(images):
    data = TrainData(images, Path("somewhere"))
    assert copy.deepcopy(data) is data
    assert TrainData.of(data) is data
    assert TrainData.of(images).cache is None


def test_the_hash_is_that_of_the_dataset_or_computed_from_its_content(images):
    assert TrainData(images).sha256 == images.content_sha256

    class WithoutHash(SyntheticDataset):
        def metadata(self):
            return {"name": self.name}

    dataset, same, other = WithoutHash(), WithoutHash(), WithoutHash()
    other._images = 255 - other._images
    assert TrainData(dataset).sha256 == TrainData(same).sha256 != TrainData(other).sha256


def test_a_missing_attribute_is_an_error_that_names_it():
    with pytest.raises(UsageError, match=r"list without labels, images, num_classes, metadata. Expected a torch"):
        TrainData([1, 2])


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1, -1, 0], r"labels of train_data are -1 to 1\. Expected 0 to 3, for 4 classes"),
        ([0, 1, 4, 0], r"labels of train_data are 0 to 4\. Expected 0 to 3"),
        ([0.0, 1.0, 1.0, 0.0], r"torch\.float64 of shape \(4,\)\. Expected one integer per image, 4 in total"),
        ([[0], [1], [2], [3]], r"of shape \(4, 1\)\. Expected one integer per image"),
    ],
)
def test_labels_that_are_no_classes_are_refused(labels, message):
    dataset = ArrayImages("four", np.zeros((4, 8, 8, 3), np.uint8), np.arange(4), ["a", "b", "c", "d"])
    dataset.labels = np.asarray(labels)
    with pytest.raises(UsageError, match=message):
        TrainData(dataset)


class ManyClasses(torch.utils.data.Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, index):
        return torch.zeros(3, 16, 16), index


@pytest.mark.parametrize("method", ["rmt", "eata", "gtta"])
def test_more_classes_than_the_network_are_refused_at_construction(method):
    with pytest.raises(UsageError, match=f"train_data has 10 classes, but the model has {CLASSES}"):
        driftlaw.adapt(tiny_model(), method, train_data=ManyClasses())
