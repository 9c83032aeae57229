"""LoaderStream: what loaders return, and the recipe of a stream that cannot be rebuilt."""

import json
from collections import UserDict
from operator import length_hint

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset

from driftlaw.errors import UsageError
from driftlaw.streams import LoaderStream
from driftlaw.streams.loader import collate, split_batch

IMAGES = torch.rand(10, 3, 4, 5, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(10) % 3
DATASET = TensorDataset(IMAGES, LABELS)


class Samples(IterableDataset):
    """Dataset without a reliable length."""

    def __iter__(self):
        return iter(IMAGES)

    def __len__(self):
        return 7  # wrong, as with several workers


@pytest.mark.parametrize(
    "batch",
    [
        (IMAGES, LABELS),
        [IMAGES, LABELS],
        (IMAGES, LABELS, ["a path"] * 10),
        {"image": IMAGES, "label": LABELS},
        {"pixel_values": IMAGES, "labels": LABELS.tolist()},
        UserDict(images=IMAGES, target=LABELS.int()),
        (IMAGES.numpy(), LABELS.numpy()),
    ],
)
def test_batches_with_labels(batch):
    images, labels = split_batch(batch, 0)
    assert torch.equal(images, IMAGES)
    assert torch.equal(labels.long(), LABELS)


@pytest.mark.parametrize("batch", [IMAGES, (IMAGES,), [IMAGES], {"pixel_values": IMAGES}, (IMAGES, None)])
def test_batches_without_labels(batch):
    images, labels = split_batch(batch, 0)
    assert torch.equal(images, IMAGES)
    assert labels is None


@pytest.mark.parametrize("images", [IMAGES * 4 - 2, (IMAGES * 255).to(torch.uint8), IMAGES.double()])
def test_images_are_not_changed(images):
    (batch,) = LoaderStream([images])
    assert batch.images is images


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"pixels": IMAGES}, "Batch 3 has the keys pixels; expected images under one of images, image, pixel_values"),
        ("abc", r"Batch 3 is a str, in which driftlaw found str instead of images\. Expected a dense tensor"),
        ((), "Batch 3 is a tuple"),
        (IMAGES.to_sparse(), r"found torch.sparse_coo tensor instead of images\. Expected a dense tensor"),
        (IMAGES[0], r"images of batch 3 have shape \(3, 4, 5\); expected \(n, c, h, w\)"),
        (IMAGES[:0], r"images of batch 3 have shape \(0, 3, 4, 5\)"),
        ((IMAGES, ["cat"] * 10), "labels of batch 3 are a list; expected an integer from 0, or a label map, for each"),
        ((IMAGES, LABELS[:4]), r"labels of batch 3 have shape \(4,\); expected .* for each of 10"),
        ((IMAGES, LABELS[:, None]), r"shape \(10, 1\); .* Use labels.squeeze\(1\), or labels.argmax\(1\) for one-hot"),
        ((IMAGES, torch.eye(10)), r"shape \(10, 10\); .* labels.argmax\(1\) for one-hot labels"),
        ((IMAGES, LABELS.float()), r"dtype torch.float32; .* Use labels.long\(\)"),
        ((IMAGES, LABELS - 1), "Batch 3 has the label -1; expected an integer from 0"),
        ((IMAGES, IMAGES), r"labels of batch 3 have shape \(10, 3, 4, 5\)"),
    ],
)
def test_other_batches_are_refused(batch, message):
    with pytest.raises(UsageError, match=message):
        split_batch(batch, 3)


@pytest.mark.parametrize("workers", [0, 1])
def test_images_of_different_sizes_are_refused(workers):
    items = [torch.zeros(3, 4, 4), torch.zeros(3, 4, 4), torch.zeros(3, 4, 4), torch.zeros(3, 6, 4)]
    stream = LoaderStream(DataLoader(items, batch_size=2, num_workers=workers))
    with pytest.raises(UsageError, match=r"Batch 1 contains .* \[3, 4, 4\] and \[3, 6, 4\]. Resize"):
        list(stream)


def test_batches_have_numbers_and_one_domain():
    stream = LoaderStream(DataLoader(DATASET, batch_size=4))
    batches = list(stream)
    assert [batch.index for batch in batches] == [0, 1, 2]
    assert [batch.starts_domain for batch in batches] == [True, False, False]
    assert {batch.domain.name for batch in batches} == {"stream"}
    assert len(stream) == 3
    assert torch.equal(torch.cat([batch.labels for batch in stream]), LABELS)
    assert [batch.index for batch in stream.iter_from(2)] == [2]


def test_recipe_says_what_can_be_known():
    recipe = LoaderStream(DataLoader(Subset(DATASET, range(8)), batch_size=4)).recipe()
    digest = recipe.pop("first_batch_sha256")
    assert len(digest) == 64
    assert json.loads(json.dumps(recipe)) == {
        "schedule": "loader",
        "dataset": {"name": "Subset of TensorDataset", "count": 8},
        "loader": "torch.utils.data.dataloader.DataLoader",
        "batch_size": 4,
        "shuffled": None,
        "repeatable": True,
        "image_shape": [3, 4, 5],
        "image_dtype": "float32",
    }
    other = LoaderStream(DataLoader(Subset(DATASET, range(1, 9)), batch_size=4)).recipe()
    assert other["first_batch_sha256"] != digest
    assert LoaderStream([IMAGES]).recipe()["first_batch_sha256"] != LoaderStream([(IMAGES, LABELS)]).recipe()


def test_recipe_contains_the_folder_of_a_dataset(tmp_path):
    dataset = TensorDataset(IMAGES)
    dataset.root = tmp_path
    assert LoaderStream(DataLoader(Subset(dataset, [0]))).recipe()["dataset"]["path"] == str(tmp_path)


def test_recipe_is_of_the_pass_that_follows():
    """The first batch that the recipe read is not lost, and a shuffling loader is described for each pass."""
    loader = DataLoader(DATASET, batch_size=5, shuffle=True, generator=torch.Generator().manual_seed(1))
    stream, hashes = LoaderStream(loader), []
    for _ in range(2):
        recipe = stream.recipe()
        assert recipe["shuffled"]
        assert stream.recipe() == recipe
        batches = list(stream)
        assert sorted(torch.cat([batch.labels for batch in batches]).tolist()) == sorted(LABELS.tolist())
        assert (
            recipe["first_batch_sha256"]
            == LoaderStream([(batches[0].images, batches[0].labels)]).recipe()["first_batch_sha256"]
        )
        hashes.append(recipe["first_batch_sha256"])
    assert hashes[0] != hashes[1]


def test_a_generator_can_be_used_once():
    stream = LoaderStream(IMAGES[start : start + 5] for start in (0, 5))
    assert not stream.repeatable
    recipe = stream.recipe()
    assert not recipe["repeatable"]
    assert len(list(stream)) == 2
    assert stream.recipe() == recipe
    with pytest.raises(UsageError, match="The generator of this stream has been used and cannot be repeated"):
        list(stream)


def test_streams_without_a_length():
    for loader in (DataLoader(Samples(), batch_size=5), (batch for batch in [IMAGES])):
        stream = LoaderStream(loader)
        assert length_hint(stream, -1) == -1
        assert all(batch.images.shape[1:] == (3, 4, 5) for batch in stream)
    assert (
        repr(LoaderStream(DataLoader(Samples(), batch_size=5)))
        == "<LoaderStream: Samples, unknown number of batches of 5>"
    )


@pytest.mark.parametrize("loader", [[], DataLoader(DATASET, batch_size=20, drop_last=True), iter(())])
def test_loaders_without_batches_are_refused(loader):
    with pytest.raises(UsageError, match="has no batches"):
        LoaderStream(loader).recipe()


@pytest.mark.parametrize("loader", [IMAGES, IMAGES.numpy(), "abc", 3, None])
def test_what_is_not_a_loader_is_refused(loader):
    with pytest.raises(UsageError, match=rf"Found a {type(loader).__name__}; expected a DataLoader"):
        LoaderStream(loader)


def test_collate_accepts_pil_images():
    picture = Image.fromarray((IMAGES[0].permute(1, 2, 0).numpy() * 255).astype(np.uint8))
    images, labels = collate([(picture, 1), (picture, 2)])
    assert images.shape == (2, 3, 4, 5)
    assert images.dtype == torch.uint8
    assert labels.tolist() == [1, 2]
    assert collate([{"image": picture.convert("L"), "label": 4}])["image"].shape == (1, 3, 4, 5)


def test_repr_is_short():
    assert repr(LoaderStream(DataLoader(DATASET, batch_size=4))) == "<LoaderStream: TensorDataset, 3 batches of 4>"
    assert repr(LoaderStream(batch for batch in [IMAGES])) == "<LoaderStream: generator, unknown number of batches>"
    (batch,) = LoaderStream([IMAGES])
    assert repr(batch) == "<Batch 0 of stream: images (10, 3, 4, 5), without labels>"
