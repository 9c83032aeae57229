"""Embedded test set."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image

from driftlaw.datasets import load_dataset
from driftlaw.datasets.embedded import read_embedded, untile
from driftlaw.errors import DataError
from driftlaw.paths import ASSETS

STEM = "cifar10_test_2000"


def test_it_has_200_images_per_class():
    dataset = load_dataset("cifar10-embedded")
    assert len(dataset) == 2000
    assert np.bincount(dataset.labels).tolist() == [200] * 10
    assert dataset.images(np.arange(2000)).shape == (2000, 32, 32, 3)
    assert dataset.class_names[0] == "airplane"


def test_every_ten_images_contain_each_class_once():
    labels = load_dataset("cifar10-embedded").labels.reshape(-1, 10)
    assert (np.sort(labels) == np.arange(10)).all()
    assert len({tuple(row) for row in labels.tolist()}) > 150


def test_files_are_small_and_indices_are_unique():
    notes = json.loads((ASSETS / f"{STEM}.json").read_text())
    assert (ASSETS / f"{STEM}.webp").stat().st_size < 4_000_000
    assert len(set(notes["indices"])) == 2000
    assert max(notes["indices"]) < 10_000


def test_images_look_like_cifar10():
    images = load_dataset("cifar10-embedded").images(np.arange(2000)).astype(float)
    # The whole test set has channel means 126.0, 123.7, 114.9; a fifth of it is close.
    assert np.abs(images.mean((0, 1, 2)) - [126.0, 123.7, 114.9]).max() < 3
    assert np.abs(np.diff(images, axis=2)).mean() < 15


def test_untile_reads_left_to_right_and_top_to_bottom():
    sheet = np.arange(4, dtype=np.uint8).reshape(2, 2).repeat(3, 0).repeat(3, 1)[..., None].repeat(3, 2)
    assert untile(sheet, 2)[:, 0, 0, 0].tolist() == [0, 1, 2, 3]


def test_changed_pixel_raises(tmp_path):
    shutil.copy(ASSETS / f"{STEM}.json", tmp_path)
    with Image.open(ASSETS / f"{STEM}.webp") as image:
        changed = image.convert("RGB")
    changed.putpixel((5, 5), (1, 2, 3))
    changed.save(tmp_path / f"{STEM}.webp", lossless=True, quality=0, method=0)
    with pytest.raises(DataError, match="Reinstall driftlaw"):
        read_embedded(tmp_path)


def test_missing_and_damaged_files_raise(tmp_path):
    with pytest.raises(DataError, match=rf"{STEM}\.json"):
        read_embedded(tmp_path)
    shutil.copy(ASSETS / f"{STEM}.json", tmp_path)
    (tmp_path / f"{STEM}.webp").write_bytes((ASSETS / f"{STEM}.webp").read_bytes()[:1000])
    with pytest.raises(DataError, match=rf"{STEM}\.webp"):
        read_embedded(tmp_path)
