"""The embedded test set."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image

from driftlaw.datasets import ArrayImages, load_dataset
from driftlaw.datasets.embedded import choose, read_embedded, write_embedded
from driftlaw.errors import DataError
from driftlaw.paths import ASSETS

STEM = "cifar10_test_2000"


def test_it_holds_two_thousand_images_two_hundred_a_class():
    source = load_dataset("cifar10-embedded")
    assert len(source) == 2000
    assert np.bincount(source.labels).tolist() == [200] * 10
    assert source.images(np.arange(2000)).shape == (2000, 32, 32, 3)
    assert source.class_names[0] == "airplane"


def test_every_ten_in_a_row_hold_each_class_once():
    labels = load_dataset("cifar10-embedded").labels.reshape(-1, 10)
    assert (np.sort(labels) == np.arange(10)).all()
    assert len({tuple(row) for row in labels.tolist()}) > 150


def test_it_is_small_and_holds_each_test_image_once():
    notes = json.loads((ASSETS / f"{STEM}.json").read_text())
    assert (ASSETS / f"{STEM}.webp").stat().st_size < 4_000_000
    assert len(set(notes["indices"])) == 2000
    assert max(notes["indices"]) < 10_000


def test_its_pixels_are_photographs():
    images = load_dataset("cifar10-embedded").images(np.arange(2000)).astype(float)
    # The whole test set has channel means 126.0, 123.7, 114.9; a fifth of it lies close by.
    assert np.abs(images.mean((0, 1, 2)) - [126.0, 123.7, 114.9]).max() < 3
    assert np.abs(np.diff(images, axis=2)).mean() < 15


def test_what_is_written_is_read_back(tmp_path):
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.repeat(np.arange(3), 30))
    images = rng.integers(0, 256, (90, 32, 32, 3), dtype=np.uint8)
    source = ArrayImages("made up", images, labels, ["a", "b", "c"])
    write_embedded(source, tmp_path, per_class=25)
    again = read_embedded(tmp_path)
    chosen = choose(labels, 25)
    assert (again.images(np.arange(75)) == images[chosen]).all()
    assert (again.labels == labels[chosen]).all()


def test_the_choice_depends_on_the_labels_alone():
    labels = np.repeat(np.arange(2), 5)
    assert choose(labels, 2).tolist() == choose(labels, 2).tolist()
    assert (labels[choose(labels, 5)].reshape(5, 2).sum(1) == 1).all()


def test_too_few_images_of_a_class_are_told():
    with pytest.raises(DataError, match="class 1 has 1 images; 2 are needed"):
        choose(np.array([0, 0, 1]), 2)


def test_a_changed_pixel_is_noticed(tmp_path):
    shutil.copy(ASSETS / f"{STEM}.json", tmp_path)
    with Image.open(ASSETS / f"{STEM}.webp") as picture:
        changed = picture.convert("RGB")
    changed.putpixel((5, 5), (1, 2, 3))
    changed.save(tmp_path / f"{STEM}.webp", lossless=True, quality=0, method=0)
    with pytest.raises(DataError, match="install driftlaw again"):
        read_embedded(tmp_path)


def test_missing_and_damaged_files_are_named(tmp_path):
    with pytest.raises(DataError, match=rf"{STEM}\.json"):
        read_embedded(tmp_path)
    shutil.copy(ASSETS / f"{STEM}.json", tmp_path)
    (tmp_path / f"{STEM}.webp").write_bytes((ASSETS / f"{STEM}.webp").read_bytes()[:1000])
    with pytest.raises(DataError, match=rf"{STEM}\.webp"):
        read_embedded(tmp_path)
