"""Images in memory."""

import numpy as np
import pytest

from driftlaw.datasets import ArrayImages, content_sha256
from driftlaw.errors import DataError, UsageError

IMAGES = np.arange(3 * 2 * 4 * 3, dtype=np.uint8).reshape(3, 2, 4, 3)


def test_images_come_in_the_order_asked_for():
    source = ArrayImages("tiny", IMAGES, [0, 1, 0], ["a", "b"])
    assert (source.images([2, 0]) == IMAGES[[2, 0]]).all()
    assert (len(source), source.num_classes, source.image_shape) == (3, 2, (2, 4))
    assert source.labels.dtype == np.int64


def test_what_is_given_out_can_be_changed_without_changing_the_source():
    source = ArrayImages("tiny", IMAGES.copy(), [0, 1, 0], ["a", "b"])
    source.images([0])[:] = 0
    assert (source.images([0]) == IMAGES[:1]).all()


def test_no_indices_give_no_images():
    assert ArrayImages("tiny", IMAGES, [0, 1, 0], ["a", "b"]).images([]).shape == (0, 2, 4, 3)


@pytest.mark.parametrize("indices", [[3], [-1]])
def test_an_index_out_of_range_is_refused(indices):
    with pytest.raises(UsageError, match="0 to 2"):
        ArrayImages("tiny", IMAGES, [0, 1, 0], ["a", "b"]).images(indices)


def test_facts_are_plain_and_carry_the_hash():
    facts = ArrayImages("tiny", IMAGES, [0, 1, 0], ["a", "b"], {"split": "test", "origin": "made up"}).facts()
    assert facts == {
        "name": "tiny",
        "count": 3,
        "num_classes": 2,
        "image_shape": [2, 4],
        "split": "test",
        "origin": "made up",
        "sha256": content_sha256(IMAGES, np.array([0, 1, 0])),
    }


def test_the_hash_sees_a_pixel_and_a_label_but_not_the_memory_order():
    labels = np.array([0, 1, 0])
    plain = content_sha256(IMAGES, labels)
    changed = IMAGES.copy()
    changed[0, 0, 0, 0] += 1
    assert content_sha256(changed, labels) != plain
    assert content_sha256(IMAGES, labels[::-1] + 1) != plain
    assert content_sha256(np.asfortranarray(IMAGES), labels.astype(np.int32)) == plain


@pytest.mark.parametrize(
    ("images", "labels", "told"),
    [
        (IMAGES.astype(np.float32), [0, 1, 0], "expected uint8"),
        (IMAGES[..., :1], [0, 1, 0], "expected uint8"),
        (IMAGES, [0, 1], "one an image"),
        (IMAGES, [0, 1, 2], "expected 0 to 1"),
        (IMAGES, [0, 1, -1], "expected 0 to 1"),
    ],
)
def test_images_and_labels_that_do_not_fit_are_refused(images, labels, told):
    with pytest.raises(DataError, match=told):
        ArrayImages("tiny", images, labels, ["a", "b"])
