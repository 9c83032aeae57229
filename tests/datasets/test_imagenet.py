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


def test_numbered_folders_are_the_classes_of_their_numbers(tmp_path):
    write(tmp_path / "some-images", sorted(NUMBERS, key=lambda name: name[::-1]))
    # written in another order: folder 0321 still holds class 321
    source = load_dataset("imagenet", data_dir=tmp_path)
    assert source.num_classes == 1000
    assert source.labels.tolist() == list(range(1000))
    assert [source.class_names[number] for number in (0, 9, 10, 999)] == ["0000", "0009", "0010", "0999"]
    assert source.facts()["name"] == "imagenet"
    assert source.facts()["origin"] == "ImageNet validation images, 1 a class, as they are"
    expected = sorted(NUMBERS, key=lambda name: name[::-1])
    for number in (0, 7, 321, 999):
        assert abs(int(source.images([number])[0, 0, 0, 0]) - expected.index(f"{number:04d}") % 256) <= 2
    # the same as a folder of the user's own
    own = load_dataset(f"folder:{tmp_path / 'some-images'}")
    assert own.labels.tolist() == list(range(1000))
    assert own.class_names[321] == "0321"


def test_wnids_are_the_classes_in_sorted_order_and_train_is_told_from_val(tmp_path):
    write(tmp_path / "imagenet" / "val", reversed(WNIDS), each=2)
    write(tmp_path / "imagenet" / "train", WNIDS)
    source = load_dataset("imagenet", data_dir=tmp_path)
    assert source.class_names == WNIDS
    assert source.labels[:4].tolist() == [0, 0, 1, 1]
    assert "ImageNet validation images, 2 a class" in source.facts()["origin"]
    train = load_dataset("imagenet", data_dir=tmp_path, split="train")
    assert (len(train), train.facts()["split"]) == (1000, "train")
    assert "ImageNet training images" in train.facts()["origin"]
    assert dataset_info("imagenet").is_present(tmp_path)


def test_other_folders_are_not_taken_for_it(tmp_path):
    write(tmp_path / "pets", ["cat", "dog"])
    write(tmp_path / "few", NUMBERS[:5])
    assert find_imagenet(tmp_path, "test") is None
    assert find_imagenet(tmp_path / "missing", "test") is None
    assert not dataset_info("imagenet").is_present(tmp_path)
    with pytest.raises(DataError, match=r"put its 1000 class folders .*imagenet/val"):
        load_dataset("imagenet", data_dir=tmp_path)
    with pytest.raises(DataError, match="imagenet/train"):
        load_dataset("imagenet", data_dir=tmp_path, split="train")
