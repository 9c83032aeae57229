"""Sample images of a stream."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from driftlaw.corruptions import corrupt
from driftlaw.datasets import load_dataset
from driftlaw.errors import DataError, UsageError
from driftlaw.streams import make_stream
from driftlaw.streams.samples import sample_images


def pixels(file):
    return np.asarray(Image.open(io.BytesIO(file)).convert("RGB"))


def test_samples_are_the_first_image_of_the_stream_in_each_domain():
    stream = make_stream("embedded", corruptions=["fog", "contrast"], severity=3, seed=4, limit=10)
    samples = sample_images(stream.recipe())
    assert list(samples) == ["clean", "fog", "contrast"]
    index = stream.indices[:1]
    clean = load_dataset("cifar10-embedded").images(index)
    assert np.array_equal(pixels(samples["clean"]), clean[0])
    images = torch.from_numpy(clean.copy()).permute(0, 3, 1, 2)
    fog = corrupt(images, "fog", 3, seed=0, indices=torch.from_numpy(index))
    assert np.array_equal(pixels(samples["fog"]), fog[0].permute(1, 2, 0).numpy())


def test_large_images_are_reduced(tmp_path):
    (tmp_path / "cat").mkdir()
    Image.new("RGB", (300, 150), (9, 9, 9)).save(tmp_path / "cat" / "one.png")
    (file,) = sample_images({"dataset": f"folder:{tmp_path}", "corruptions": ["clean"]}).values()
    assert max(pixels(file).shape) == 80


def test_other_images_of_the_same_name_are_refused():
    recipe = make_stream("embedded", corruptions=["fog"]).recipe()
    recipe["dataset"]["sha256"] = "0" * 64
    with pytest.raises(DataError, match="is not the one of the recipe"):
        sample_images(recipe)


def test_missing_dataset_and_unknown_recipe_are_errors(tmp_path):
    with pytest.raises(DataError, match="cifar10"):
        sample_images({"dataset": {"name": "cifar10", "sha256": "0"}, "corruptions": ["fog"]}, data_dir=tmp_path)
    with pytest.raises(UsageError):
        sample_images({"dataset": {"name": "cifar10-embedded"}, "camera": 1})
