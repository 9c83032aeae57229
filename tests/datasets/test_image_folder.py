"""Datasets in image folders."""

import json
import os

import numpy as np
import pytest
from PIL import Image

from driftlaw.datasets import load_dataset
from driftlaw.errors import DataError, UsageError


def write_image(path, size=(8, 6), color=(10, 20, 30), mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, color).convert(mode).save(path)


def test_sub_folders_are_classes_in_natural_order(tmp_path):
    for name in ("10", "9", "1"):
        write_image(tmp_path / name / "a.png", color=(int(name), 0, 0))
    dataset = load_dataset(f"folder:{tmp_path}")
    assert dataset.class_names == ["1", "9", "10"]
    assert dataset.labels.tolist() == [0, 1, 2]
    assert dataset.images([2, 0])[:, 0, 0, 0].tolist() == [10, 1]


def test_small_images_of_one_size_are_unchanged(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    (tmp_path / "cat").mkdir()
    Image.fromarray(noise).save(tmp_path / "cat" / "a.png")
    dataset = load_dataset(f"folder:{tmp_path}")
    assert dataset.image_shape == (6, 8)
    assert (dataset.images([0])[0] == noise).all()


@pytest.mark.parametrize("sizes", [[(300, 300)], [(8, 6), (6, 8)], [(40, 400), (224, 224)]])
def test_other_images_are_resized_and_center_cropped(tmp_path, sizes):
    for number, size in enumerate(sizes):
        write_image(tmp_path / "cat" / f"{number}.png", size)
    dataset = load_dataset(f"folder:{tmp_path}")
    assert dataset.image_shape == (224, 224)
    images = dataset.images(np.arange(len(sizes)))
    assert images.shape == (len(sizes), 224, 224, 3)
    assert (images == [10, 20, 30]).all()


def test_crop_is_centered(tmp_path):
    wide = np.zeros((256, 512, 3), np.uint8)
    wide[:, 256:] = 255
    (tmp_path / "cat").mkdir()
    Image.fromarray(wide).save(tmp_path / "cat" / "a.png")
    image = load_dataset(f"folder:{tmp_path}").images([0])[0]
    assert (image[:, :112] == 0).all()
    assert (image[:, 112:] == 255).all()


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "1", "CMYK"])
def test_every_image_mode_becomes_rgb(tmp_path, mode):
    name = "a.tif" if mode == "CMYK" else "a.png"
    write_image(tmp_path / "cat" / name, color=(255, 255, 255), mode=mode)
    assert (load_dataset(f"folder:{tmp_path}").images([0]) == 255).all()


def test_hidden_and_other_files_are_ignored(tmp_path):
    write_image(tmp_path / "cat" / "a.png")
    write_image(tmp_path / "cat" / ".b.png")
    write_image(tmp_path / ".thumbnails" / "a.png")
    (tmp_path / "cat" / "notes.txt").write_text("")
    (tmp_path / "readme.txt").write_text("")
    dataset = load_dataset(f"folder:{tmp_path}")
    assert (len(dataset), dataset.class_names) == (1, ["cat"])


def test_split_selects_train_or_test_folder(tmp_path):
    write_image(tmp_path / "train" / "cat" / "a.png", color=(1, 1, 1))
    write_image(tmp_path / "val" / "cat" / "a.png", color=(2, 2, 2))
    for split, value in (("train", 1), ("test", 2)):
        dataset = load_dataset(f"folder:{tmp_path}", split=split)
        assert dataset.metadata()["split"] == split
        assert (dataset.images([0]) == value).all()


def test_plain_folder_has_no_train_split(tmp_path):
    write_image(tmp_path / "cat" / "a.png")
    with pytest.raises(DataError, match="no sub-folders 'train'"):
        load_dataset(f"folder:{tmp_path}", split="train")


def test_metadata_is_json_and_depends_on_the_files(tmp_path):
    write_image(tmp_path / "cat" / "a.png")
    before = load_dataset(f"folder:{tmp_path}").metadata()
    write_image(tmp_path / "cat" / "a.png", color=(0, 0, 0))
    after = load_dataset(f"folder:{tmp_path}").metadata()
    assert json.loads(json.dumps(before)) == before
    assert before["sha256"] != after["sha256"]


def test_origin_states_images_per_class_if_equal(tmp_path):
    for name in ("cat", "dog"):
        for number in range(5):
            write_image(tmp_path / name / f"{number}.png")
    assert "5 a class" in load_dataset(f"folder:{tmp_path}").metadata()["origin"]
    write_image(tmp_path / "cat" / "one more.png")
    assert "a class" not in load_dataset(f"folder:{tmp_path}").metadata()["origin"]


def test_a_folder_without_sub_folders_has_no_labels(tmp_path):
    for name in ("10.png", "9.jpg", ".hidden.png", "notes.txt"):
        write_image(tmp_path / name) if not name.endswith("txt") else (tmp_path / name).write_text("")
    dataset = load_dataset(f"folder:{tmp_path}")
    assert (len(dataset), dataset.num_classes, dataset.class_names) == (2, 0, [])
    assert dataset.labels.tolist() == [-1, -1]
    assert [path.name for path in dataset._files] == ["9.jpg", "10.png"]
    assert json.loads(json.dumps(dataset.metadata()))["count"] == 2


def test_empty_or_missing_folders_raise(tmp_path):
    with pytest.raises(DataError, match="no images and no sub-folders"):
        load_dataset(f"folder:{tmp_path}")
    with pytest.raises(DataError, match="does not exist"):
        load_dataset(f"folder:{tmp_path / 'missing'}")
    write_image(tmp_path / "cat" / "a.png")
    (tmp_path / "dog").mkdir()
    with pytest.raises(DataError, match="dog"):
        load_dataset(f"folder:{tmp_path}")


def test_damaged_image_raises(tmp_path):
    write_image(tmp_path / "cat" / "a.png", size=(64, 64))
    whole = (tmp_path / "cat" / "a.png").read_bytes()
    (tmp_path / "cat" / "a.png").write_bytes(whole[:-30])
    dataset = load_dataset(f"folder:{tmp_path}")
    with pytest.raises(DataError, match=r"a\.png cannot be read"):
        dataset.images([0])
    (tmp_path / "cat" / "a.png").write_bytes(b"not an image")
    with pytest.raises(DataError, match=r"a\.png cannot be read"):
        load_dataset(f"folder:{tmp_path}")


@pytest.mark.parametrize("size", [8, 300])
def test_pipe_with_the_name_of_an_image_raises(tmp_path, size):
    Image.new("RGB", (size, size)).save(tmp_path / "a.png")
    os.mkfifo(tmp_path / "b.png")
    with pytest.raises(DataError, match=r"b\.png is not a regular file"):
        load_dataset(f"folder:{tmp_path}").metadata()
    with pytest.raises(DataError, match=r"b\.png is not a regular file"):
        load_dataset(f"folder:{tmp_path}").images([0, 1])


def test_index_out_of_range_raises(tmp_path):
    write_image(tmp_path / "cat" / "a.png")
    with pytest.raises(UsageError, match="0 to 0"):
        load_dataset(f"folder:{tmp_path}").images([1])
