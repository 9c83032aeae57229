"""Datasets with label maps: folders, CamVid, Cityscapes and ACDC in their layouts, and bad files."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from driftlaw.datasets import LabelMapImages, dataset_info, load_dataset
from driftlaw.errors import DataError, UsageError

MAP = np.array([[0, 1, 1, 255], [2, 2, 0, 0], [1, 1, 1, 1]], np.uint8)  # 3 × 4 pixels


def write_image(path: Path, pixels: np.ndarray | None = None, shade: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((3, 4, 3), shade, np.uint8) if pixels is None else pixels).save(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two sequences of two frames, with label 9 for pixels without a class."""
    for number, name in enumerate(("day/2", "day/10", "night/1", "night/3")):
        write_image(tmp_path / "images" / f"{name}.jpg", shade=60 * number)
        write_image(tmp_path / "labels" / f"{name}.png", np.where(MAP == 255, 9, MAP))
    (tmp_path / "classes.json").write_text(json.dumps({"names": ["road", "sky", "car"], "ignore_index": 9}))
    return tmp_path


def test_folder_has_frames_in_natural_order_and_sequences(folder):
    dataset = load_dataset(f"folder:{folder}")
    assert isinstance(dataset, LabelMapImages)
    assert (dataset.class_names, dataset.image_shape, len(dataset)) == (["road", "sky", "car"], (3, 4), 4)
    assert [path.stem for path in dataset.image_files] == ["2", "10", "1", "3"]
    assert {name: part.tolist() for name, part in dataset.sequences.items()} == {"day": [0, 1], "night": [2, 3]}
    assert dataset.images([3, 0])[:, 0, 0, 0] == pytest.approx([180, 0], abs=2)
    assert (dataset.label_maps([1, 2]) == MAP).all()
    assert dataset.metadata()["class_names"] == ["road", "sky", "car"]


def test_size_resizes_images_and_label_maps(folder):
    dataset = load_dataset(f"folder:{folder}", size=(6, 8))
    assert dataset.images([0]).shape == (1, 6, 8, 3)
    assert (dataset.label_maps([0])[0] == MAP.repeat(2, 0).repeat(2, 1)).all()
    with pytest.raises(UsageError, match="datasets with label maps, and cifar10-embedded has none"):
        load_dataset("cifar10-embedded", size=(6, 8))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"labels/day/2.png": MAP}, r"day/2.png: found the class index 255; expected 0, 1, 2, 9"),
        ({"labels/day/2.png": MAP[:, :3]}, "has 3×3 pixels, but its image has 4×3"),
        ({"labels/day/2.png": np.stack([MAP] * 3, 2)}, "mode RGB; expected 8-bit class indices"),
        ({"labels/day/2.png": None}, r"day/2.jpg has no label map. Expected .*day/2.png"),
        ({"classes.json": {"names": ["road"]}}, "has 1 class. Expected two or more"),
        ({"classes.json": {"names": "road"}}, "no list of at most 255 class names"),
        ({"classes.json": {"names": ["road", "sky"], "ignore_index": 1}}, "ignore_index 1. Expected .* from 2 to 255"),
    ],
)
def test_wrong_files_have_one_clear_message(folder, content, message):
    for name, value in content.items():
        if value is None:
            (folder / name).unlink()
        elif isinstance(value, dict):
            (folder / name).write_text(json.dumps(value))
        else:
            write_image(folder / name, value)
    with pytest.raises(DataError, match=message):
        load_dataset(f"folder:{folder}").label_maps([0])


def test_train_split_of_a_folder(folder):
    with pytest.raises(DataError, match="no sub-folders 'train' and 'test'"):
        load_dataset(f"folder:{folder}", split="train")
    for split, name in (("train", "a"), ("val", "b")):
        write_image(folder / split / "images" / f"{name}.png")
        write_image(folder / split / "labels" / f"{name}.png", MAP % 3)
    stems = {split: load_dataset(f"folder:{folder}", split=split).image_files[0].stem for split in ("train", "test")}
    assert stems == {"train": "a", "test": "b"}


def test_camvid_in_split_folders(tmp_path):
    write_image(tmp_path / "camvid" / "test" / "Seq05VD_f00000.webp")
    write_image(tmp_path / "camvid" / "test" / "Seq05VD_f00000.png", np.where(MAP == 255, 11, MAP))
    dataset = load_dataset("camvid", data_dir=tmp_path)
    assert (dataset.num_classes, list(dataset.sequences)) == (11, ["Seq05VD"])
    assert (dataset.label_maps([0])[0] == MAP).all()
    assert dataset_info("camvid").is_present(tmp_path)


def test_camvid_in_its_official_layout(tmp_path):
    colors = np.zeros((3, 4, 3), np.uint8)
    colors[0], colors[1, :2], colors[1, 2:] = (128, 64, 128), (64, 192, 0), (1, 2, 3)  # road, wall, unknown
    names = ["0001TP_008520", "0001TP_008550", "0006R0_f00930", "0016E5_07961", "0016E5_08400", "Seq05VD_f00030"]
    for name in names:
        write_image(tmp_path / "CamVid" / "701_StillsRaw_full" / f"{name}.png")
        write_image(tmp_path / "CamVid" / "LabeledApproved_full" / f"{name}_L.png", colors)
    splits = {name: load_dataset("camvid", data_dir=tmp_path, split=name) for name in ("train", "val", "test")}
    assert {name: [path.stem for path in split.image_files] for name, split in splits.items()} == {
        "train": [names[0], names[2], names[4]],
        "val": [names[3]],
        "test": [names[1], names[5]],
    }
    assert splits["test"].label_maps([1])[0].tolist() == [[3] * 4, [1, 1, 255, 255], [255] * 4]
    write_image(tmp_path / "CamVid" / "LabeledApproved_full" / f"{names[1]}_L.png", np.full((3, 4, 3), 5, np.uint8))
    with pytest.raises(DataError, match="none of its colors is the color of a class"):
        splits["test"].label_maps([0])


@pytest.mark.parametrize(("encoding", "road", "bicycle"), [("labelTrainIds", 0, 18), ("labelIds", 7, 33)])
def test_cityscapes_and_acdc_in_their_official_layouts(tmp_path, encoding, road, bicycle):
    label = np.array([[road, bicycle, 255], [255, road, road]], np.uint8)
    for city in ("ulm", "aachen"):
        frame = tmp_path / "cityscapes" / "leftImg8bit" / "val" / city / f"{city}_000_019_leftImg8bit.png"
        write_image(frame, np.zeros((2, 3, 3), np.uint8))
        write_image(tmp_path / "cityscapes" / "gtFine" / "val" / city / f"{city}_000_019_gtFine_{encoding}.png", label)
    for condition in ("snow", "fog", "night", "rain"):
        for number in (12, 3):
            name = Path(condition, "val", "GOPR1", f"GOPR1_frame_{number}")
            write_image(tmp_path / "ACDC" / "rgb_anon" / f"{name}_rgb_anon.png", np.zeros((2, 3, 3), np.uint8))
            write_image(tmp_path / "ACDC" / "gt" / f"{name}_gt_{encoding}.png", label)
    for name, sequences in (("cityscapes", ["aachen", "ulm"]), ("acdc", ["fog", "night", "rain", "snow"])):
        dataset = load_dataset(name, data_dir=tmp_path)
        assert (list(dataset.sequences), dataset.num_classes) == (sequences, 19)
        assert dataset.label_maps([1])[0].tolist() == [[0, 18, 255], [255, 0, 0]]
    assert [path.stem.split("_")[2] for path in dataset.image_files[:2]] == ["3", "12"]
    with pytest.raises(DataError, match=r"acdc \(train\) was not found in .*rgb_anon and gt"):
        load_dataset("acdc", data_dir=tmp_path, split="train")
