"""ImageNet's class folders."""

import io

import pytest
from PIL import Image

from driftlaw.datasets import dataset_info, load_dataset
from driftlaw.datasets.imagenet import find_imagenet
from driftlaw.errors import DataError


def jpeg(value, size=8):
    out = io.BytesIO()
    Image.new("RGB", (size, size), (value, value, value)).save(out, "JPEG", quality=95)
    return out.getvalue()


def write(folder, names, each=1):
    bright = [jpeg(value) for value in range(256)]
    for number, name in enumerate(names):
        (folder / name).mkdir(parents=True)
        for count in range(each):
            (folder / name / f"ILSVRC2012_val_{count:08d}.JPEG").write_bytes(bright[number % 256])


NUMBERS = [f"{number:04d}" for number in range(1000)]
WNIDS = [f"n{1440764 + 7919 * number:08d}" for number in range(1000)]


def test_numbered_folders_are_read_by_class_index(tmp_path):
    write(tmp_path / "some-images", sorted(NUMBERS, key=lambda name: name[::-1]))
    # written in another order: folder 0321 still contains class 321
    dataset = load_dataset("imagenet", data_dir=tmp_path)
    assert dataset.num_classes == 1000
    assert dataset.labels.tolist() == list(range(1000))
    assert [dataset.class_names[number] for number in (0, 9, 10, 999)] == ["0000", "0009", "0010", "0999"]
    assert dataset.metadata()["name"] == "imagenet"
    assert dataset.metadata()["origin"] == "ImageNet validation images, 1 a class, as they are"
    expected = sorted(NUMBERS, key=lambda name: name[::-1])
    for number in (0, 7, 321, 999):
        assert abs(int(dataset.images([number])[0, 0, 0, 0]) - expected.index(f"{number:04d}") % 256) <= 2
    # the same when opened as an image folder
    folder = load_dataset(f"folder:{tmp_path / 'some-images'}")
    assert folder.labels.tolist() == list(range(1000))
    assert folder.class_names[321] == "0321"


def test_wnid_folders_are_read_in_sorted_order_for_both_splits(tmp_path):
    write(tmp_path / "imagenet" / "val", reversed(WNIDS), each=2)
    write(tmp_path / "imagenet" / "train", WNIDS)
    dataset = load_dataset("imagenet", data_dir=tmp_path)
    assert dataset.class_names == WNIDS
    assert dataset.labels[:4].tolist() == [0, 0, 1, 1]
    assert "ImageNet validation images, 2 a class" in dataset.metadata()["origin"]
    train = load_dataset("imagenet", data_dir=tmp_path, split="train")
    assert (len(train), train.metadata()["split"]) == (1000, "train")
    assert "ImageNet training images" in train.metadata()["origin"]
    assert dataset_info("imagenet").is_present(tmp_path)


def test_other_folders_are_not_imagenet(tmp_path):
    write(tmp_path / "pets", ["cat", "dog"])
    write(tmp_path / "few", NUMBERS[:5])
    assert find_imagenet(tmp_path, "test") is None
    assert find_imagenet(tmp_path / "missing", "test") is None
    assert not dataset_info("imagenet").is_present(tmp_path)
    with pytest.raises(DataError, match=r"Put its 1000 class folders .*imagenet/val"):
        load_dataset("imagenet", data_dir=tmp_path)
    with pytest.raises(DataError, match="imagenet/train"):
        load_dataset("imagenet", data_dir=tmp_path, split="train")
