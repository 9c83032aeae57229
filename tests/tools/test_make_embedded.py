"""tools/make_embedded.py."""

import hashlib
import json

import numpy as np
import pytest

from driftlaw.datasets import ArrayImages
from driftlaw.datasets.embedded import STEM, read_embedded
from driftlaw.errors import DataError
from driftlaw.paths import ASSETS
from tools.make_embedded import RULE, choose, write_embedded


def test_written_files_are_read_back(tmp_path):
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.repeat(np.arange(3), 30))
    images = rng.integers(0, 256, (90, 32, 32, 3), dtype=np.uint8)
    dataset = ArrayImages("synthetic", images, labels, ["a", "b", "c"])
    write_embedded(dataset, tmp_path, per_class=25)
    again = read_embedded(tmp_path)
    chosen = choose(labels, 25)
    assert (again.images(np.arange(75)) == images[chosen]).all()
    assert (again.labels == labels[chosen]).all()


def test_choice_is_balanced_in_every_row_of_classes():
    labels = np.repeat(np.arange(2), 5)
    assert (labels[choose(labels, 5)].reshape(5, 2).sum(1) == 1).all()


def test_choice_follows_the_rule():
    def key(purpose, index):
        return hashlib.sha256(f"driftlaw cifar10-embedded {purpose} {index}".encode()).hexdigest()

    ranked = sorted(range(10), key=lambda index: key("choice", index))
    assert choose(np.zeros(10, np.int64), 4).tolist() == ranked[:4]


def test_too_few_images_of_a_class_raise():
    with pytest.raises(DataError, match="Class 1 has 1 images; expected at least 2"):
        choose(np.array([0, 0, 1]), 2)


def test_rule_is_the_one_in_the_embedded_file():
    notes = json.loads((ASSETS / f"{STEM}.json").read_text())
    assert notes["rule"] == RULE
