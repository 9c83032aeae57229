"""ArrayImages and the content hash."""

import numpy as np
import pytest

from driftlaw.datasets import ArrayImages, content_sha256
from driftlaw.errors import DataError, UsageError

IMAGES = np.arange(3 * 2 * 4 * 3, dtype=np.uint8).reshape(3, 2, 4, 3)


def test_images_are_returned_in_the_requested_order():
    dataset = ArrayImages("tiny", IMAGES, [0, 1, 0], ["a", "b"])
    assert (dataset.images([2, 0]) == IMAGES[[2, 0]]).all()
    assert (len(dataset), dataset.num_classes, dataset.image_shape) == (3, 2, (2, 4))
    assert dataset.labels.dtype == np.int64


def test_returned_images_are_copies():
    dataset = ArrayImages("tiny", IMAGES.copy(), [0, 1, 0], ["a", "b"])
    dataset.images([0])[:] = 0
    assert (dataset.images([0]) == IMAGES[:1]).all()


def test_empty_indices_give_an_empty_array():
    assert ArrayImages("tiny", IMAGES, [0, 1, 0], ["a", "b"]).images([]).shape == (0, 2, 4, 3)


@pytest.mark.parametrize("indices", [[3], [-1]])
def test_index_out_of_range_raises(indices):
    with pytest.raises(UsageError, match="0 to 2"):
        ArrayImages("tiny", IMAGES, [0, 1, 0], ["a", "b"]).images(indices)


def test_metadata_contains_the_content_hash():
    metadata = ArrayImages("tiny", IMAGES, [0, 1, 0], ["a", "b"], {"split": "test", "origin": "made up"}).metadata()
    assert metadata == {
        "name": "tiny",
        "count": 3,
        "num_classes": 2,
        "image_shape": [2, 4],
        "split": "test",
        "origin": "made up",
        "sha256": content_sha256(IMAGES, np.array([0, 1, 0])),
    }


def test_hash_depends_on_pixels_and_labels_but_not_on_memory_order():
    labels = np.array([0, 1, 0])
    plain = content_sha256(IMAGES, labels)
    changed = IMAGES.copy()
    changed[0, 0, 0, 0] += 1
    assert content_sha256(changed, labels) != plain
    assert content_sha256(IMAGES, labels[::-1] + 1) != plain
    assert content_sha256(np.asfortranarray(IMAGES), labels.astype(np.int32)) == plain


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (IMAGES.astype(np.float32), [0, 1, 0], "expected uint8"),
        (IMAGES[..., :1], [0, 1, 0], "expected uint8"),
        (IMAGES, [0, 1], "one per image"),
        (IMAGES, [0, 1, 2], "expected 0 to 1"),
        (IMAGES, [0, 1, -1], "expected 0 to 1"),
    ],
)
def test_invalid_images_or_labels_raise(images, labels, message):
    with pytest.raises(DataError, match=message):
        ArrayImages("tiny", images, labels, ["a", "b"])
