"""Anybody's torch Dataset as the source of a stream."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, Subset, TensorDataset

import driftlaw
from driftlaw.datasets import content_sha256, load_dataset
from driftlaw.datasets import torch_dataset as sources
from driftlaw.datasets.torch_dataset import as_image_dataset, as_pixels
from driftlaw.errors import DataError, UsageError
from driftlaw.streams import TorchDatasetImages, make_stream

PIXELS = np.random.default_rng(0).integers(0, 256, (12, 32, 32, 3), dtype=np.uint8)
LABELS = np.arange(12) % 3


class Items(Dataset):
    """Gives the same images in any form."""

    def __init__(self, form, labels=LABELS):
        self.form, self.labels_given, self.asked = form, labels, 0

    def __len__(self):
        return len(self.labels_given)

    def __getitem__(self, index):
        self.asked += 1
        return self.form(PIXELS[index]), self.labels_given[index]


def as_bytes(pixels):
    return torch.from_numpy(pixels).permute(2, 0, 1)


def as_floats(pixels):
    return as_bytes(pixels).float() / 255


FORMS = {"pil": Image.fromarray, "bytes": as_bytes, "floats": as_floats, "array": lambda pixels: pixels}


@pytest.mark.parametrize("form", FORMS)
def test_an_image_may_come_in_any_form(form):
    source = TorchDatasetImages(Items(FORMS[form]))
    assert (source.images([3, 0]) == PIXELS[[3, 0]]).all()
    assert source.labels.tolist() == LABELS.tolist()
    assert (len(source), source.num_classes, source.image_shape) == (12, 3, (32, 32))
    facts = source.facts()
    assert json.loads(json.dumps(facts)) == facts
    assert facts["sha256"] == content_sha256(PIXELS, LABELS)
    assert "Items" in facts["origin"]


def test_labels_may_be_tensors_and_names_are_taken_from_the_dataset():
    given = TensorDataset(torch.stack([as_floats(each) for each in PIXELS]), torch.from_numpy(LABELS))
    given.classes = ["cat", "dog", "cow", "pig"]
    source = as_image_dataset(given)
    assert source.class_names == ["cat", "dog", "cow", "pig"]
    assert as_image_dataset(Subset(given, [2, 5])).labels.tolist() == [2, 2]


def test_a_small_dataset_is_read_once_and_a_large_one_again(monkeypatch):
    small = Items(as_bytes)
    source = TorchDatasetImages(small)
    asked = small.asked
    source.images(np.arange(12))
    assert small.asked == asked
    monkeypatch.setattr(sources, "KEPT_BYTES", 1000)
    large = Items(as_bytes)
    source = TorchDatasetImages(large)
    asked = large.asked
    assert (source.images([7]) == PIXELS[7]).all()
    assert large.asked == asked + 1
    assert source.facts()["sha256"] == content_sha256(PIXELS, LABELS)
    large.labels_given = LABELS[::-1]
    with pytest.raises(DataError, match="had label 0 and now has 2"):
        source.images([0])


def test_our_own_images_pass_through():
    embedded = load_dataset("cifar10-embedded")
    assert as_image_dataset(embedded) is embedded


def test_grey_and_flat_images_become_rgb():
    grey = torch.full((1, 4, 5), 0.5)
    assert (as_pixels(grey) == 128).all()
    assert as_pixels(grey[0]).shape == as_pixels(np.zeros((4, 5), np.uint8)).shape == (4, 5, 3)
    assert as_pixels(Image.new("L", (5, 4), 7)).tolist() == np.full((4, 5, 3), 7).tolist()


@pytest.mark.parametrize(
    ("image", "told"),
    [
        (torch.randn(3, 4, 4) * 3, r"expected \[0, 1\]: take the normalisation out"),
        (torch.full((3, 4, 4), float("nan")), r"expected \[0, 1\]"),
        (torch.zeros(3, 4, 4, dtype=torch.int64), "expected bytes, or floats"),
        (torch.zeros(4, 4, 4), "expected one or three channels"),
        (torch.zeros(1, 3, 4, 4), "expected one or three channels"),
        ("cat.png", "is a str; expected a PIL picture"),
    ],
)
def test_what_is_no_image_is_told_with_its_number(image, told):
    class One(Dataset):
        def __len__(self):
            return 1

        def __getitem__(self, index):
            return image, 0

    with pytest.raises(UsageError, match=rf"item 0 of dataset:One: .*{told}"):
        TorchDatasetImages(One())


def test_other_mistakes_are_told():
    with pytest.raises(UsageError, match="source is a int; expected a torch Dataset"):
        as_image_dataset(3)
    with pytest.raises(UsageError, match="is empty"):
        as_image_dataset(Items(as_bytes, labels=[]))
    with pytest.raises(UsageError, match=r"expected \(image, label\)"):
        as_image_dataset([torch.zeros(3, 4, 4)])
    with pytest.raises(UsageError, match=r"item 1 .*5×4 pixels, the first one 4×4.*one size"):
        as_image_dataset([(torch.zeros(3, 4, 4), 0), (torch.zeros(3, 5, 4), 0)])
    with pytest.raises(DataError, match="run from -1"):
        as_image_dataset([(torch.zeros(3, 4, 4), -1)])


RECIPE = {"corruptions": ["contrast", "clean"], "batch_size": 5, "order": "as-is"}


def test_a_dataset_makes_a_stream():
    stream = driftlaw.make_stream(RECIPE, source=Items(as_floats))
    batches = list(stream)
    assert (len(batches), stream.num_classes) == (6, 3)
    clean = torch.cat([batch.images for batch in batches[3:]])
    assert torch.equal(clean, torch.from_numpy(PIXELS).permute(0, 3, 1, 2).float() / 255)
    assert torch.cat([batch.labels for batch in batches[:3]]).tolist() == LABELS.tolist()
    recipe = stream.recipe()
    assert recipe["dataset"]["name"] == "dataset:Items"
    again = make_stream(recipe, source=Items(as_bytes))
    assert all(torch.equal(one.images, two.images) for one, two in zip(stream, again, strict=True))
    with pytest.raises(UsageError, match="Unknown dataset 'dataset:Items'"):
        make_stream(recipe)


def test_streams_of_the_same_dataset_share_its_images_and_others_do_not():
    items, others = Items(as_bytes), Items(as_bytes, labels=LABELS[::-1])
    first = make_stream(RECIPE, source=items)
    assert make_stream(RECIPE, source=items, like=first, order="shuffled").pixels is first.pixels
    assert make_stream(RECIPE, source=others, like=first).pixels is not first.pixels
    embedded = load_dataset("cifar10-embedded")
    given = make_stream(RECIPE, source=embedded)
    assert make_stream(RECIPE, like=given).pixels is not given.pixels
