"""Archives in the CIFAR-10-C layout."""

import json
import os
import re

import numpy as np
import pytest

from driftlaw.datasets import ARCHIVES, ArchiveDataset, dataset_info, open_archive
from driftlaw.datasets.archives import MANIFEST
from driftlaw.errors import DataError, UsageError
from driftlaw.files import sha256_of
from tools.make_archive import ArchiveWriter

LABELS = np.array([2, 0, 1, 1])
IMAGES = np.random.default_rng(0).integers(0, 256, (20, 3, 5, 3), dtype=np.uint8)


@pytest.fixture
def official(tmp_path):
    """Folder as its authors published it: no manifest, labels of another integer dtype."""
    np.save(tmp_path / "fog.npy", IMAGES)
    np.save(tmp_path / "frost.npy", 255 - IMAGES)
    np.save(tmp_path / "labels.npy", np.tile(LABELS, 5).astype(np.uint8))
    return tmp_path


def test_official_folder_is_read_unchanged(official):
    archive = open_archive(official)
    assert archive.corruptions() == ["fog", "frost"]
    assert (len(archive), archive.num_classes, archive.image_shape) == (4, 3, (3, 5))
    assert archive.labels.tolist() == LABELS.tolist()
    assert archive.labels.dtype == np.int64
    assert (archive.images("fog", 3, [3, 0]) == IMAGES[[11, 8]]).all()
    assert (archive.images("frost", 5, np.arange(4)) == 255 - IMAGES[16:]).all()
    assert archive.verify() == []


def test_returned_images_are_copies(official):
    archive = open_archive(official)
    archive.images("fog", 1, [0])[:] = 0
    assert (archive.images("fog", 1, [0]) == IMAGES[:1]).all()


def test_known_name_is_found_in_the_data_directory(official, tmp_path):
    (tmp_path / "data").mkdir()
    os.rename(official / "fog.npy", tmp_path / "data" / "fog.npy")
    os.rename(official / "labels.npy", tmp_path / "data" / "labels.npy")
    os.rename(tmp_path / "data", tmp_path / "CIFAR-10-C")
    assert open_archive("cifar10-c", data_dir=tmp_path).corruptions() == ["fog"]


def test_cifar100_c_is_found_by_name(official, tmp_path):
    (tmp_path / "CIFAR-100-C").mkdir()
    for path in official.glob("*.npy"):
        path.rename(tmp_path / "CIFAR-100-C" / path.name)
    assert open_archive("cifar100-c", data_dir=tmp_path).corruptions() == ["fog", "frost"]
    assert ARCHIVES["cifar100-c"].is_present(tmp_path)


def test_every_archive_is_described_and_has_a_dataset():
    for name, info in ARCHIVES.items():
        assert info.name == name
        assert info.title
        assert info.licence
        assert dataset_info(info.dataset).num_classes == info.num_classes


def test_archive_dataset_states_the_origin_of_the_clean_images(tmp_path):
    recipe = {"dataset": {"name": "cifar100", "origin": "our split: made up"}}
    ArchiveWriter(tmp_path, 4, LABELS, recipe=recipe).write("fog", [IMAGES])
    metadata = ArchiveDataset("cifar100-c", open_archive(tmp_path)).metadata()
    assert metadata["origin"] == "made by driftlaw from our split: made up"
    assert metadata["name"] == "cifar100-c"


def test_metadata_hashes_the_files_in_use(official):
    archive = open_archive(official)
    metadata = archive.metadata(["fog"])
    assert metadata["files"] == {
        "fog.npy": sha256_of(official / "fog.npy"),
        "labels.npy": sha256_of(official / "labels.npy"),
    }
    assert json.loads(json.dumps(metadata)) == metadata
    assert metadata["origin"] == "a folder in the official layout"
    assert archive.metadata()["sha256"] != metadata["sha256"]


@pytest.mark.parametrize("severity", [0, 6])
def test_invalid_severity_raises(official, severity):
    with pytest.raises(UsageError, match="1, 2, 3, 4, 5"):
        open_archive(official).images("fog", severity, [0])


def test_invalid_index_or_corruption_raises(official):
    archive = open_archive(official)
    with pytest.raises(UsageError, match="0 to 3"):
        archive.images("fog", 1, [4])
    with pytest.raises(UsageError, match="Did you mean 'frost'"):
        archive.images("forst", 1, [0])


def test_missing_folder_or_labels_raise(tmp_path, official):
    with pytest.raises(DataError, match=r"labels\.npy is missing from .*nowhere"):
        open_archive(tmp_path / "nowhere")
    (official / "labels.npy").unlink()
    with pytest.raises(DataError, match=r"python -m tools\.make_archive cifar10-c"):
        open_archive(official)


def test_folder_without_images_raises(official):
    (official / "fog.npy").unlink()
    (official / "frost.npy").unlink()
    with pytest.raises(DataError, match="no corrupted images"):
        open_archive(official)


@pytest.mark.parametrize("content", [b"", b"<html>", b"\x93NUMPY", b"\x93NUMPY\x01\x00\x0a\x00{'descr':(\n"])
def test_damaged_file_raises(official, content):
    (official / "fog.npy").write_bytes(content)
    archive = open_archive(official)
    with pytest.raises(DataError, match=r"fog\.npy in .* is damaged"):
        archive.images("fog", 1, [0])
    assert len(archive.verify()) == 1


def test_truncated_file_raises(official):
    whole = (official / "fog.npy").read_bytes()
    (official / "fog.npy").write_bytes(whole[:-1])
    with pytest.raises(DataError, match=r"fog\.npy in .* is damaged"):
        open_archive(official).images("fog", 1, [0])


def test_pickled_objects_are_not_loaded(official):
    np.save(official / "fog.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="damaged"):
        open_archive(official).images("fog", 1, [0])


@pytest.mark.parametrize("wrong", [IMAGES[:15], IMAGES.astype(np.float32), IMAGES[..., 0]])
def test_images_of_wrong_shape_or_dtype_raise(official, wrong):
    np.save(official / "fog.npy", wrong)
    with pytest.raises(DataError, match=r"expected uint8 \(20, height, width, 3\)"):
        open_archive(official).images("fog", 1, [0])


@pytest.mark.parametrize("labels", [np.arange(20), np.arange(7), np.zeros((5, 4), int), np.zeros(20), np.zeros(0, int)])
def test_labels_that_are_not_five_equal_blocks_raise(official, labels):
    np.save(official / "labels.npy", labels)
    with pytest.raises(DataError, match=r"labels\.npy"):
        open_archive(official)


@pytest.mark.parametrize("label", [2**40, 1_000_000, -1])
def test_labels_beyond_the_limit_are_refused_before_memory_is_allocated(official, label):
    np.save(official / "labels.npy", np.tile([0, 1, 2, label], 5))
    with pytest.raises(DataError, match=rf"labels\.npy range from .*{label}.*; expected 0 to 999,999"):
        open_archive(official)


def test_files_that_differ_from_the_manifest_are_refused(tmp_path):
    ArchiveWriter(tmp_path, 4, LABELS).write("fog", [IMAGES])
    hashed = open_archive(tmp_path).metadata(["fog"])["files"]["fog.npy"]
    assert hashed == sha256_of(tmp_path / "fog.npy")
    np.save(tmp_path / "fog.npy", 255 - IMAGES)  # of the same size
    archive = open_archive(tmp_path)
    with pytest.raises(DataError, match=rf"fog\.npy has sha256 .*; the manifest says {hashed}"):
        archive.metadata(["fog"])
    assert len(archive.verify()) == 1


def test_files_are_hashed_once_unless_they_change(official, monkeypatch):
    hashed = []
    monkeypatch.setattr("driftlaw.datasets.archives.sha256_of", lambda path: hashed.append(path.name) or "0" * 64)
    for _ in range(2):
        open_archive(official).metadata(["fog"])
    assert hashed == ["fog.npy", "labels.npy"]
    np.save(official / "fog.npy", 255 - IMAGES)
    os.utime(official / "fog.npy", ns=(1, 1))
    open_archive(official).metadata(["fog"])
    assert hashed == ["fog.npy", "labels.npy", "fog.npy"]


def test_pipes_are_not_read(official):
    (official / "fog.npy").unlink()
    os.mkfifo(official / "fog.npy")
    with pytest.raises(DataError, match=r"fog\.npy is missing"):
        open_archive(official).metadata(["fog"])
    (official / "labels.npy").unlink()
    os.mkfifo(official / "labels.npy")
    with pytest.raises(DataError, match=r"labels\.npy is not a regular file"):
        open_archive(official)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"files": []}, "files: Input should be"),
        ({"files": {"fog.npy": "abc"}}, "files.fog.npy: Input should be"),
        (
            {"files": {"fog.npy": {"sha256": [3], "bytes": 5}}},
            "files.fog.npy.sha256.str: Input should be",
        ),
        ({"num_classes": "3"}, "num_classes: Input should be a valid integer"),
        ({"num_classes": 10**9}, "num_classes: Input should be less than or equal to 1000000"),
        ({"num_classes": 0}, "num_classes: Input should be greater than or equal to 1"),
        ({"recipe": "fog"}, "recipe: Input should be"),
    ],
)
def test_manifest_with_a_wrong_type_is_refused(tmp_path, changes, problem):
    ArchiveWriter(tmp_path, 4, LABELS).write("fog", [IMAGES])
    manifest = json.loads((tmp_path / MANIFEST).read_text())
    (tmp_path / MANIFEST).write_text(json.dumps(manifest | changes))
    with pytest.raises(DataError, match=rf"{MANIFEST} cannot be read \({re.escape(problem)}.*Delete it"):
        open_archive(tmp_path)


def test_recipe_without_a_dataset_is_accepted(tmp_path):
    ArchiveWriter(tmp_path, 4, LABELS, recipe={"dataset": "mine"}).write("fog", [IMAGES])
    assert ArchiveDataset("mine", open_archive(tmp_path)).metadata()["origin"] == "made by driftlaw"


@pytest.mark.parametrize("content", ["{", "[]", "{}"])
def test_damaged_manifest_raises(official, content):
    (official / MANIFEST).write_text(content)
    with pytest.raises(DataError, match=MANIFEST):
        open_archive(official)
