"""Archives in the ImageNet-C layout."""

import json
import os

import numpy as np
import pytest
from PIL import Image

from driftlaw.datasets import ARCHIVES, ArchiveDataset, FolderArchive, open_archive
from driftlaw.errors import DataError, UsageError

CLASSES = ("n02000000", "n01000000", "n03000000")


def write(folder, corruptions=("fog", "frost"), levels=(1, 2, 3, 4, 5)):
    """Write two images per class; their brightness encodes corruption, severity, class and index."""
    for position, corruption in enumerate(corruptions):
        for level in levels:
            for name in CLASSES:
                class_folder = folder / corruption / str(level) / name
                class_folder.mkdir(parents=True)
                for number in range(2):
                    value = 100 * position + 10 * level + 2 * sorted(CLASSES).index(name) + number
                    Image.new("RGB", (16, 12), (value,) * 3).save(
                        class_folder / f"ILSVRC2012_val_{number}.JPEG", quality=100
                    )
    return folder


def values(images):
    return np.rint(images.mean((1, 2, 3))).astype(int).tolist()


@pytest.fixture
def official(tmp_path):
    return write(tmp_path / "ImageNet-C")


def test_official_folders_are_read_unchanged(official):
    archive = open_archive(official)
    assert isinstance(archive, FolderArchive)
    assert archive.corruptions() == ["fog", "frost"]
    assert (len(archive), archive.num_classes, archive.image_shape) == (6, 3, (12, 16))
    assert archive.class_names == sorted(CLASSES)
    assert archive.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert values(archive.images("fog", 3, [5, 0, 2])) == [35, 30, 32]
    assert values(archive.images("frost", 5, np.arange(6))) == [150, 151, 152, 153, 154, 155]
    assert archive.verify() == []


def test_known_name_is_found_in_the_data_directory(official):
    assert len(open_archive("imagenet-c", data_dir=official.parent)) == 6
    assert ARCHIVES["imagenet-c"].is_present(official.parent)
    assert not ARCHIVES["imagenet-c"].is_present(official)


def test_only_requested_images_are_opened(official):
    archive = open_archive(official)
    for path in official.rglob("*_1.JPEG"):
        path.write_bytes(b"")
    assert values(archive.images("fog", 1, [0, 2])) == [10, 12]
    with pytest.raises(DataError, match=r"_1\.JPEG cannot be read"):
        archive.images("fog", 1, [1])


def test_metadata_is_json_and_depends_on_the_files(official):
    archive = open_archive(official)
    metadata = archive.metadata(["fog"])
    assert json.loads(json.dumps(metadata)) == metadata
    assert metadata["origin"] == "folders in the official layout, 2 a class"
    assert (metadata["name"], metadata["count"], metadata["num_classes"]) == ("ImageNet-C", 6, 3)
    (official / "fog" / "4" / CLASSES[0] / "ILSVRC2012_val_0.JPEG").write_bytes(b"other")
    assert open_archive(official).metadata(["fog"])["sha256"] != metadata["sha256"]
    assert open_archive(official).metadata(["frost"]) == archive.metadata(["frost"])


def test_missing_images_are_reported(official):
    os.unlink(official / "frost" / "2" / CLASSES[1] / "ILSVRC2012_val_1.JPEG")
    archive = open_archive(official)
    (problem,) = archive.verify()
    assert "1 of 6 images are missing" in problem
    with pytest.raises(DataError, match=r"ILSVRC2012_val_1\.JPEG cannot be read"):
        archive.images("frost", 2, np.arange(6))
    with pytest.raises(UsageError, match="Did you mean 'fog'"):
        archive.images("fogg", 2, [0])
    with pytest.raises(UsageError, match="1, 2, 3, 4, 5"):
        archive.images("fog", 6, [0])


def test_missing_severity_raises(tmp_path):
    archive = open_archive(write(tmp_path, levels=(5,)))
    assert values(archive.images("fog", 5, [0])) == [50]
    with pytest.raises(DataError, match=r"fog/3 is missing"):
        archive.images("fog", 3, [0])


def test_image_of_another_size_raises(official):
    Image.new("RGB", (20, 20)).save(official / "fog" / "1" / CLASSES[1] / "ILSVRC2012_val_1.JPEG")
    with pytest.raises(DataError, match="20×20 pixels; expected 16×12"):
        open_archive(official).images("fog", 1, [0, 1])


def test_archive_dataset_has_no_clean_images(official):
    dataset = ArchiveDataset("imagenet-c", open_archive(official))
    assert (len(dataset), dataset.num_classes, dataset.image_shape) == (6, 3, (12, 16))
    assert dataset.metadata()["name"] == "imagenet-c"
    assert dataset.metadata()["origin"].startswith("folders in the official layout")
    with pytest.raises(UsageError, match="contains corrupted images only"):
        dataset.images([0])


def test_unknown_layout_raises_and_names_both_layouts(tmp_path):
    (tmp_path / "fog").mkdir()
    with pytest.raises(DataError, match=r"labels\.npy is missing .*ImageNet-C"):
        open_archive(tmp_path)
