"""A folder of pictures."""

import json

import numpy as np
import pytest
from PIL import Image

from driftlaw.datasets import load_dataset
from driftlaw.errors import DataError, UsageError


def picture(path, size=(8, 6), colour=(10, 20, 30), mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).convert(mode).save(path)


def test_sub_folders_are_classes_in_natural_order(tmp_path):
    for name in ("10", "9", "1"):
        picture(tmp_path / name / "a.png", colour=(int(name), 0, 0))
    source = load_dataset(f"folder:{tmp_path}")
    assert source.class_names == ["1", "9", "10"]
    assert source.labels.tolist() == [0, 1, 2]
    assert source.images([2, 0])[:, 0, 0, 0].tolist() == [10, 1]


def test_small_pictures_of_one_size_stay_as_they_are(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    (tmp_path / "cat").mkdir()
    Image.fromarray(noise).save(tmp_path / "cat" / "a.png")
    source = load_dataset(f"folder:{tmp_path}")
    assert source.image_shape == (6, 8)
    assert (source.images([0])[0] == noise).all()


@pytest.mark.parametrize("sizes", [[(300, 300)], [(8, 6), (6, 8)], [(40, 400), (224, 224)]])
def test_other_pictures_are_resized_and_their_middle_is_cut_out(tmp_path, sizes):
    for number, size in enumerate(sizes):
        picture(tmp_path / "cat" / f"{number}.png", size)
    source = load_dataset(f"folder:{tmp_path}")
    assert source.image_shape == (224, 224)
    images = source.images(np.arange(len(sizes)))
    assert images.shape == (len(sizes), 224, 224, 3)
    assert (images == [10, 20, 30]).all()


def test_the_middle_is_the_middle(tmp_path):
    wide = np.zeros((256, 512, 3), np.uint8)
    wide[:, 256:] = 255
    (tmp_path / "cat").mkdir()
    Image.fromarray(wide).save(tmp_path / "cat" / "a.png")
    image = load_dataset(f"folder:{tmp_path}").images([0])[0]
    assert (image[:, :112] == 0).all()
    assert (image[:, 112:] == 255).all()


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "1", "CMYK"])
def test_every_kind_of_picture_becomes_rgb(tmp_path, mode):
    name = "a.tif" if mode == "CMYK" else "a.png"
    picture(tmp_path / "cat" / name, colour=(255, 255, 255), mode=mode)
    assert (load_dataset(f"folder:{tmp_path}").images([0]) == 255).all()


def test_hidden_files_and_other_files_are_passed_over(tmp_path):
    picture(tmp_path / "cat" / "a.png")
    picture(tmp_path / "cat" / ".b.png")
    picture(tmp_path / ".thumbnails" / "a.png")
    (tmp_path / "cat" / "notes.txt").write_text("")
    (tmp_path / "readme.txt").write_text("")
    source = load_dataset(f"folder:{tmp_path}")
    assert (len(source), source.class_names) == (1, ["cat"])


def test_train_and_test_folders_are_told_apart(tmp_path):
    picture(tmp_path / "train" / "cat" / "a.png", colour=(1, 1, 1))
    picture(tmp_path / "val" / "cat" / "a.png", colour=(2, 2, 2))
    for split, value in (("train", 1), ("test", 2)):
        source = load_dataset(f"folder:{tmp_path}", split=split)
        assert source.facts()["split"] == split
        assert (source.images([0]) == value).all()


def test_a_plain_folder_is_no_training_set(tmp_path):
    picture(tmp_path / "cat" / "a.png")
    with pytest.raises(DataError, match="no «train»"):
        load_dataset(f"folder:{tmp_path}", split="train")


def test_facts_are_plain_and_follow_the_files(tmp_path):
    picture(tmp_path / "cat" / "a.png")
    before = load_dataset(f"folder:{tmp_path}").facts()
    picture(tmp_path / "cat" / "a.png", colour=(0, 0, 0))
    after = load_dataset(f"folder:{tmp_path}").facts()
    assert json.loads(json.dumps(before)) == before
    assert before["sha256"] != after["sha256"]


def test_the_origin_says_how_many_a_class_where_all_have_as_many(tmp_path):
    for name in ("cat", "dog"):
        for number in range(5):
            picture(tmp_path / name / f"{number}.png")
    assert "5 a class" in load_dataset(f"folder:{tmp_path}").facts()["origin"]
    picture(tmp_path / "cat" / "one more.png")
    assert "a class" not in load_dataset(f"folder:{tmp_path}").facts()["origin"]


def test_an_empty_folder_a_missing_one_and_an_empty_class_are_told(tmp_path):
    with pytest.raises(DataError, match="no sub-folders"):
        load_dataset(f"folder:{tmp_path}")
    with pytest.raises(DataError, match="there is no folder"):
        load_dataset(f"folder:{tmp_path / 'missing'}")
    picture(tmp_path / "cat" / "a.png")
    (tmp_path / "dog").mkdir()
    with pytest.raises(DataError, match="dog"):
        load_dataset(f"folder:{tmp_path}")


def test_a_damaged_picture_is_named(tmp_path):
    picture(tmp_path / "cat" / "a.png", size=(64, 64))
    whole = (tmp_path / "cat" / "a.png").read_bytes()
    (tmp_path / "cat" / "a.png").write_bytes(whole[:-30])
    source = load_dataset(f"folder:{tmp_path}")
    with pytest.raises(DataError, match=r"a\.png cannot be read"):
        source.images([0])
    (tmp_path / "cat" / "a.png").write_bytes(b"not a picture")
    with pytest.raises(DataError, match=r"a\.png cannot be read"):
        load_dataset(f"folder:{tmp_path}")


def test_an_index_out_of_range_is_refused(tmp_path):
    picture(tmp_path / "cat" / "a.png")
    with pytest.raises(UsageError, match="0 to 0"):
        load_dataset(f"folder:{tmp_path}").images([1])
