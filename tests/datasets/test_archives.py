"""Archives in the official CIFAR-10-C layout."""

import json
import os

import numpy as np
import pytest

from driftlaw.datasets import ARCHIVES, ArchiveSource, ArchiveWriter, dataset_info, open_archive
from driftlaw.datasets.archives import MANIFEST
from driftlaw.errors import DataError, UsageError
from driftlaw.files import sha256_of

LABELS = np.array([2, 0, 1, 1])
IMAGES = np.random.default_rng(0).integers(0, 256, (20, 3, 5, 3), dtype=np.uint8)


@pytest.fixture
def official(tmp_path):
    """A folder as its authors would have written it: no manifest, labels in another whole-number type."""
    np.save(tmp_path / "fog.npy", IMAGES)
    np.save(tmp_path / "frost.npy", 255 - IMAGES)
    np.save(tmp_path / "labels.npy", np.tile(LABELS, 5).astype(np.uint8))
    return tmp_path


def test_an_official_folder_is_read_unchanged(official):
    archive = open_archive(official)
    assert archive.corruptions() == ["fog", "frost"]
    assert (len(archive), archive.num_classes, archive.image_shape) == (4, 3, (3, 5))
    assert archive.labels.tolist() == LABELS.tolist()
    assert archive.labels.dtype == np.int64
    assert (archive.images("fog", 3, [3, 0]) == IMAGES[[11, 8]]).all()
    assert (archive.images("frost", 5, np.arange(4)) == 255 - IMAGES[16:]).all()
    assert archive.verify() == []


def test_images_given_out_are_not_the_file(official):
    archive = open_archive(official)
    archive.images("fog", 1, [0])[:] = 0
    assert (archive.images("fog", 1, [0]) == IMAGES[:1]).all()


def test_a_known_name_is_looked_for_under_the_data_folder(official, tmp_path):
    (tmp_path / "data").mkdir()
    os.rename(official / "fog.npy", tmp_path / "data" / "fog.npy")
    os.rename(official / "labels.npy", tmp_path / "data" / "labels.npy")
    os.rename(tmp_path / "data", tmp_path / "CIFAR-10-C")
    assert open_archive("cifar10-c", data_dir=tmp_path).corruptions() == ["fog"]


def test_cifar100_c_is_known_by_name(official, tmp_path):
    (tmp_path / "CIFAR-100-C").mkdir()
    for path in official.glob("*.npy"):
        path.rename(tmp_path / "CIFAR-100-C" / path.name)
    assert open_archive("cifar100-c", data_dir=tmp_path).corruptions() == ["fog", "frost"]
    assert ARCHIVES["cifar100-c"].is_present(tmp_path)


def test_every_known_archive_is_described_and_made_of_a_dataset():
    for name, info in ARCHIVES.items():
        assert info.name == name
        assert info.title
        assert info.licence
        assert dataset_info(info.dataset).num_classes == info.num_classes


def test_an_archive_of_our_own_says_what_it_was_made_from_where_it_stands_alone(tmp_path):
    recipe = {"dataset": {"name": "cifar100", "origin": "our split: made up"}}
    ArchiveWriter(tmp_path, 4, LABELS, recipe=recipe).write("fog", [IMAGES])
    facts = ArchiveSource("cifar100-c", open_archive(tmp_path)).facts()
    assert facts["origin"] == "made by driftlaw from our split: made up"
    assert facts["name"] == "cifar100-c"


def test_facts_hash_the_files_that_are_used(official):
    archive = open_archive(official)
    facts = archive.facts(["fog"])
    assert facts["files"] == {
        "fog.npy": sha256_of(official / "fog.npy"),
        "labels.npy": sha256_of(official / "labels.npy"),
    }
    assert json.loads(json.dumps(facts)) == facts
    assert facts["origin"] == "a folder in the official layout"
    assert archive.facts()["sha256"] != facts["sha256"]


@pytest.mark.parametrize("severity", [0, 6])
def test_there_are_five_severities(official, severity):
    with pytest.raises(UsageError, match="1, 2, 3, 4, 5"):
        open_archive(official).images("fog", severity, [0])


def test_an_index_or_a_name_that_is_not_there_is_refused(official):
    archive = open_archive(official)
    with pytest.raises(UsageError, match="0 to 3"):
        archive.images("fog", 1, [4])
    with pytest.raises(UsageError, match="Did you mean 'frost'"):
        archive.images("forst", 1, [0])


def test_a_missing_folder_or_labels_file_is_named(tmp_path, official):
    with pytest.raises(DataError, match=r"labels\.npy is missing from .*nowhere"):
        open_archive(tmp_path / "nowhere")
    (official / "labels.npy").unlink()
    with pytest.raises(DataError, match="driftlaw data make cifar10-c"):
        open_archive(official)


def test_a_folder_of_labels_alone_is_refused(official):
    (official / "fog.npy").unlink()
    (official / "frost.npy").unlink()
    with pytest.raises(DataError, match="no corrupted images"):
        open_archive(official)


@pytest.mark.parametrize("content", [b"", b"<html>", b"\x93NUMPY"])
def test_a_damaged_file_is_named(official, content):
    (official / "fog.npy").write_bytes(content)
    archive = open_archive(official)
    with pytest.raises(DataError, match=r"fog\.npy in .* is damaged"):
        archive.images("fog", 1, [0])
    assert len(archive.verify()) == 1


def test_a_truncated_file_is_named(official):
    whole = (official / "fog.npy").read_bytes()
    (official / "fog.npy").write_bytes(whole[:-1])
    with pytest.raises(DataError, match=r"fog\.npy in .* is damaged"):
        open_archive(official).images("fog", 1, [0])


def test_pickled_objects_are_not_loaded(official):
    np.save(official / "fog.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="damaged"):
        open_archive(official).images("fog", 1, [0])


@pytest.mark.parametrize("wrong", [IMAGES[:15], IMAGES.astype(np.float32), IMAGES[..., 0]])
def test_images_that_do_not_fit_the_labels_are_refused(official, wrong):
    np.save(official / "fog.npy", wrong)
    with pytest.raises(DataError, match=r"expected uint8 \(20, height, width, 3\)"):
        open_archive(official).images("fog", 1, [0])


@pytest.mark.parametrize("labels", [np.arange(20), np.arange(7), np.zeros((5, 4), int), np.zeros(20), np.zeros(0, int)])
def test_labels_that_are_not_five_equal_blocks_are_refused(official, labels):
    np.save(official / "labels.npy", labels)
    with pytest.raises(DataError, match=r"labels\.npy"):
        open_archive(official)


def write(folder, names=("fog",), images=IMAGES, **settings):
    writer = ArchiveWriter(folder, 4, LABELS, **settings)
    return [writer.write(name, np.split(images, 4)) for name in names]


def test_what_is_written_is_the_official_layout(tmp_path):
    assert write(tmp_path / "out") == [True]
    assert (np.load(tmp_path / "out" / "fog.npy") == IMAGES).all()
    assert np.load(tmp_path / "out" / "labels.npy").tolist() == LABELS.tolist() * 5
    assert sorted(os.listdir(tmp_path / "out")) == [MANIFEST, "fog.npy", "labels.npy"]


def test_a_written_archive_knows_where_it_comes_from(tmp_path):
    write(tmp_path, recipe={"seed": 3}, num_classes=10)
    archive = open_archive(tmp_path)
    assert archive.num_classes == 10
    assert archive.facts()["origin"] == "made by driftlaw"
    assert archive.facts()["recipe"] == {"seed": 3}
    assert archive.facts()["files"]["fog.npy"] == sha256_of(tmp_path / "fog.npy")
    assert archive.verify() == []


def test_a_finished_file_is_skipped_and_the_rest_is_made(tmp_path):
    write(tmp_path, ["fog"])
    before = (tmp_path / "fog.npy").stat().st_mtime_ns
    assert write(tmp_path, ["fog", "frost"]) == [False, True]
    assert (tmp_path / "fog.npy").stat().st_mtime_ns == before
    assert open_archive(tmp_path).corruptions() == ["fog", "frost"]


def test_a_changed_file_is_noticed_by_verify_and_made_again(tmp_path):
    write(tmp_path)
    changed = IMAGES.copy()
    changed[0] = 0
    np.save(tmp_path / "fog.npy", changed)
    assert "the manifest says" in open_archive(tmp_path).verify()[0]
    assert write(tmp_path) == [True]
    assert open_archive(tmp_path).verify() == []


def test_a_file_the_manifest_names_but_is_gone_is_told(tmp_path):
    write(tmp_path, ["fog", "frost"])
    (tmp_path / "fog.npy").unlink()
    assert "is missing" in open_archive(tmp_path).verify()[0]


def test_a_failure_leaves_no_half_file_and_a_killed_run_is_swept_up(tmp_path):
    def breaks():
        yield IMAGES[:10]
        raise KeyboardInterrupt

    writer = ArchiveWriter(tmp_path, 4, LABELS)
    with pytest.raises(KeyboardInterrupt):
        writer.write("fog", breaks())
    assert sorted(os.listdir(tmp_path)) == [MANIFEST, "labels.npy"]
    (tmp_path / ".fog.abc.part.npy").write_bytes(b"half")
    write(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [MANIFEST, "fog.npy", "labels.npy"]


@pytest.mark.parametrize(
    ("pieces", "told"),
    [
        ([], "no images"),
        ([IMAGES[:15]], "15 images were given; expected 20"),
        ([IMAGES.astype(np.float32)], "a piece is float32"),
        ([IMAGES[:10], IMAGES[10:, 1:]], "a piece is uint8"),
    ],
)
def test_pieces_that_do_not_fit_are_refused_and_leave_nothing(tmp_path, pieces, told):
    with pytest.raises(UsageError, match=told):
        ArchiveWriter(tmp_path, 4, LABELS).write("fog", pieces)
    assert not (tmp_path / "fog.npy").exists()


def test_an_archive_made_otherwise_is_not_mixed_with_this_one(tmp_path):
    write(tmp_path, recipe={"seed": 0})
    with pytest.raises(DataError, match="made otherwise"):
        ArchiveWriter(tmp_path, 4, LABELS, recipe={"seed": 1})


def test_official_files_are_never_written_over(official):
    with pytest.raises(DataError, match="not made by driftlaw"):
        ArchiveWriter(official, 4, LABELS)


def test_labels_of_another_length_are_refused(tmp_path):
    with pytest.raises(UsageError, match="one an image"):
        ArchiveWriter(tmp_path, 5, LABELS)


@pytest.mark.parametrize("content", ["{", "[]", "{}"])
def test_a_damaged_manifest_is_named(official, content):
    (official / MANIFEST).write_text(content)
    with pytest.raises(DataError, match=MANIFEST):
        open_archive(official)
