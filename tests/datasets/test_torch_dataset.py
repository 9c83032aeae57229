"""Torch datasets as image datasets."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, Subset, TensorDataset

import driftlaw
from driftlaw.datasets import content_sha256, load_dataset, torch_dataset
from driftlaw.datasets.torch_dataset import as_image_dataset, as_pixels
from driftlaw.errors import DataError, UsageError
from driftlaw.streams import TorchDatasetImages, make_stream

PIXELS = np.random.default_rng(0).integers(0, 256, (12, 32, 32, 3), dtype=np.uint8)
LABELS = np.arange(12) % 3


class Items(Dataset):
    """Dataset that returns the same images in any form."""

    def __init__(self, form, labels=LABELS):
        self.form, self.item_labels, self.reads = form, labels, 0

    def __len__(self):
        return len(self.item_labels)

    def __getitem__(self, index):
        self.reads += 1
        return self.form(PIXELS[index]), self.item_labels[index]


def as_bytes(pixels):
    return torch.from_numpy(pixels).permute(2, 0, 1)


def as_floats(pixels):
    return as_bytes(pixels).float() / 255


FORMS = {"pil": Image.fromarray, "bytes": as_bytes, "floats": as_floats, "array": lambda pixels: pixels}


@pytest.mark.parametrize("form", FORMS)
def test_images_may_have_any_form(form):
    dataset = TorchDatasetImages(Items(FORMS[form]))
    assert (dataset.images([3, 0]) == PIXELS[[3, 0]]).all()
    assert dataset.labels.tolist() == LABELS.tolist()
    assert (len(dataset), dataset.num_classes, dataset.image_shape) == (12, 3, (32, 32))
    metadata = dataset.metadata()
    assert json.loads(json.dumps(metadata)) == metadata
    assert metadata["sha256"] == content_sha256(PIXELS, LABELS)
    assert "Items" in metadata["origin"]


def test_labels_may_be_tensors_and_class_names_come_from_the_dataset():
    given = TensorDataset(torch.stack([as_floats(each) for each in PIXELS]), torch.from_numpy(LABELS))
    given.classes = ["cat", "dog", "cow", "pig"]
    dataset = as_image_dataset(given)
    assert dataset.class_names == ["cat", "dog", "cow", "pig"]
    assert as_image_dataset(Subset(given, [2, 5])).labels.tolist() == [2, 2]


def test_small_datasets_are_cached_and_large_ones_read_again(monkeypatch):
    small = Items(as_bytes)
    dataset = TorchDatasetImages(small)
    reads = small.reads
    dataset.images(np.arange(12))
    assert small.reads == reads
    monkeypatch.setattr(torch_dataset, "CACHE_BYTES", 1000)
    large = Items(as_bytes)
    dataset = TorchDatasetImages(large)
    reads = large.reads
    assert (dataset.images([7]) == PIXELS[7]).all()
    assert large.reads == reads + 1
    assert dataset.metadata()["sha256"] == content_sha256(PIXELS, LABELS)
    large.item_labels = LABELS[::-1]
    with pytest.raises(DataError, match="had label 0 and now has 2"):
        dataset.images([0])


def test_image_datasets_are_returned_unchanged():
    embedded = load_dataset("cifar10-embedded")
    assert as_image_dataset(embedded) is embedded


def test_grayscale_images_become_rgb():
    grey = torch.full((1, 4, 5), 0.5)
    assert (as_pixels(grey) == 128).all()
    assert as_pixels(grey[0]).shape == as_pixels(np.zeros((4, 5), np.uint8)).shape == (4, 5, 3)
    assert as_pixels(Image.new("L", (5, 4), 7)).tolist() == np.full((4, 5, 3), 7).tolist()


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (torch.randn(3, 4, 4) * 3, r"expected \[0, 1\]\. Remove the normalisation"),
        (torch.full((3, 4, 4), float("nan")), r"expected \[0, 1\]"),
        (torch.zeros(3, 4, 4, dtype=torch.int64), "expected uint8, or floats"),
        (torch.zeros(4, 4, 4), "expected one or three channels"),
        (torch.zeros(1, 3, 4, 4), "expected one or three channels"),
        ("cat.png", "is a str; expected a PIL image"),
    ],
)
def test_invalid_image_raises_with_its_index(image, message):
    class One(Dataset):
        def __len__(self):
            return 1

        def __getitem__(self, index):
            return image, 0

    with pytest.raises(UsageError, match=rf"Item 0 of dataset:One: .*{message}"):
        TorchDatasetImages(One())


def test_invalid_datasets_raise():
    with pytest.raises(UsageError, match="dataset is a int; expected a torch Dataset"):
        as_image_dataset(3)
    with pytest.raises(UsageError, match="is empty"):
        as_image_dataset(Items(as_bytes, labels=[]))
    with pytest.raises(UsageError, match=r"expected \(image, label\)"):
        as_image_dataset([torch.zeros(3, 4, 4)])
    with pytest.raises(UsageError, match=r"Item 1 .*5×4 pixels, but the first has 4×4.*Resize"):
        as_image_dataset([(torch.zeros(3, 4, 4), 0), (torch.zeros(3, 5, 4), 0)])
    with pytest.raises(DataError, match=r"labels of .* range from -1 to -1; expected 0 to"):
        as_image_dataset([(torch.zeros(3, 4, 4), -1)])
    for label in (2**40, 2**70):
        with pytest.raises(DataError, match=rf"range from {label} to {label}; expected 0 to 999,999"):
            as_image_dataset([(torch.zeros(3, 4, 4), label)])


RECIPE = {"corruptions": ["contrast", "clean"], "batch_size": 5, "order": "as-is"}


def test_dataset_makes_a_stream():
    stream = driftlaw.make_stream(RECIPE, dataset=Items(as_floats))
    batches = list(stream)
    assert (len(batches), stream.num_classes) == (6, 3)
    clean = torch.cat([batch.images for batch in batches[3:]])
    assert torch.equal(clean, torch.from_numpy(PIXELS).permute(0, 3, 1, 2).float() / 255)
    assert torch.cat([batch.labels for batch in batches[:3]]).tolist() == LABELS.tolist()
    recipe = stream.recipe()
    assert recipe["dataset"]["name"] == "dataset:Items"
    with pytest.warns(DeprecationWarning, match="Use dataset="):
        again = make_stream(recipe, source=Items(as_bytes))
    assert all(torch.equal(one.images, two.images) for one, two in zip(stream, again, strict=True))
    with pytest.raises(UsageError, match="Unknown dataset 'dataset:Items'"):
        make_stream(recipe)


def test_streams_of_the_same_dataset_share_a_cache():
    items, others = Items(as_bytes), Items(as_bytes, labels=LABELS[::-1])
    first = make_stream(RECIPE, dataset=items)
    assert make_stream(RECIPE, dataset=items, like=first, order="shuffled").cache is first.cache
    assert make_stream(RECIPE, dataset=others, like=first).cache is not first.cache
    embedded = load_dataset("cifar10-embedded")
    given = make_stream(RECIPE, dataset=embedded)
    assert make_stream(RECIPE, like=given).cache is not given.cache
