"""Official CIFAR layout."""

import os
import pickle

import numpy as np
import pytest

from driftlaw.datasets.cifar import find_batches, read_batches, read_class_names, read_pickle
from driftlaw.datasets.registry import DATASETS
from driftlaw.errors import DataError
from tests.datasets import synthetic
from tools.cifar_mosaics import dump_pickle

CIFAR10 = DATASETS["cifar10"]

LAYOUT = CIFAR10.layout


@pytest.mark.parametrize("split", ["train", "test"])
def test_written_batches_are_read_back(tmp_path, split):
    data = synthetic.splits()
    folder = synthetic.write_folder(data, tmp_path)
    images, labels = read_batches(LAYOUT, folder, split)
    assert (images == data[split][0]).all()
    assert (labels == data[split][1]).all()
    assert images.flags.c_contiguous
    assert read_class_names(LAYOUT, folder) == list(CIFAR10.class_names)
    assert sorted(os.listdir(folder)) == sorted(LAYOUT.all_files)


@pytest.mark.parametrize(("encoding", "key"), [("bytes", b"data"), ("latin1", "data")])
def test_written_pickles_load_with_both_usual_encodings(encoding, key):
    rows = np.arange(2 * 3072).reshape(2, 3072).astype(np.uint8)
    batch = pickle.loads(dump_pickle({"data": rows, "labels": [3, 300]}), encoding=encoding)
    assert (batch[key] == rows).all()
    assert batch[key].dtype == np.uint8
    assert batch["labels" if encoding == "latin1" else b"labels"] == [3, 300]


def test_channel_planes_become_pixels(tmp_path):
    rows = np.zeros((1, 3072), np.uint8)
    rows[0, 1024 + 32 * 5 + 7] = 9  # green, row 5, column 7
    (tmp_path / "test_batch").write_bytes(dump_pickle({"data": rows, "labels": [0]}))
    images, _ = read_batches(LAYOUT, tmp_path, "test")
    assert images[0, 5, 7].tolist() == [0, 9, 0]
    assert images.sum() == 9


@pytest.mark.parametrize("protocol", [2, 4])
def test_python_3_pickles_are_read(tmp_path, protocol):
    rows = np.arange(3072, dtype=np.uint8).reshape(1, 3072)
    (tmp_path / "test_batch").write_bytes(pickle.dumps({b"data": rows, b"labels": [4]}, protocol=protocol))
    images, labels = read_batches(LAYOUT, tmp_path, "test")
    assert images[0, 0, 1].tolist() == [1, 1, 1]
    assert labels.tolist() == [4]


@pytest.mark.parametrize("below", ["", "cifar-10-batches-py", "data", "data/cifar-10-batches-py"])
def test_batches_are_found_in_the_folder_and_one_level_down(tmp_path, below):
    folder = tmp_path / below
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "test_batch").write_bytes(b"")
    assert find_batches(LAYOUT, tmp_path, "test") == folder
    assert find_batches(LAYOUT, tmp_path, "train") is None


def test_missing_folder_has_no_batches(tmp_path):
    assert find_batches(LAYOUT, tmp_path / "missing", "test") is None


class _Attack:
    def __reduce__(self):
        return os.system, ("echo harm > harm.txt",)


def test_pickle_that_runs_code_raises(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test_batch").write_bytes(pickle.dumps({b"data": _Attack(), b"labels": []}))
    with pytest.raises(DataError, match="not part of an array"):
        read_batches(LAYOUT, tmp_path, "test")
    assert not (tmp_path / "harm.txt").exists()


@pytest.mark.parametrize("name", ["eval", "exec", "getattr", "__import__"])
def test_pickled_builtins_raise(tmp_path, name):
    (tmp_path / "x").write_bytes(b"c" + f"builtins\n{name}\n.".encode())
    with pytest.raises(DataError, match=f"builtins.{name}"):
        read_pickle(tmp_path / "x")


@pytest.mark.parametrize("content", [b"", b"<html></html>", b"\x80\x02}", b"\x80\x02cnumpy\ndtype\n)R."])
def test_damaged_batch_raises(tmp_path, content):
    (tmp_path / "test_batch").write_bytes(content)
    with pytest.raises(DataError, match="test_batch cannot be read"):
        read_batches(LAYOUT, tmp_path, "test")


def test_truncated_batch_raises(tmp_path):
    folder = synthetic.write_folder(synthetic.splits(), tmp_path)
    whole = (folder / "test_batch").read_bytes()
    (folder / "test_batch").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="test_batch"):
        read_batches(LAYOUT, folder, "test")


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"data": np.zeros((1, 3071), np.uint8), "labels": [0]}, r"expected uint8 \(n, 3072\)"),
        ({"data": [1, 2], "labels": [0]}, "are list"),
        ({"data": np.zeros((2, 3072), np.uint8), "labels": [0]}, "for each of its 2 images"),
        ({"data": np.zeros((1, 3072), np.uint8), "labels": [b"cat"]}, "integer label"),
        ({"data": np.zeros((1, 3072), np.uint8)}, "no entry 'labels'"),
    ],
)
def test_batch_with_wrong_content_raises(tmp_path, batch, message):
    (tmp_path / "test_batch").write_bytes(dump_pickle(batch))
    with pytest.raises(DataError, match=message):
        read_batches(LAYOUT, tmp_path, "test")


@pytest.mark.parametrize("label", [2**40, 2**70, -1])
def test_labels_beyond_the_limit_raise(tmp_path, label):
    batch = {b"data": np.zeros((1, 3072), np.uint8), b"labels": [label]}
    (tmp_path / "test_batch").write_bytes(pickle.dumps(batch, protocol=2))
    with pytest.raises(DataError, match=f"range from {label} to {label}; expected 0 to 999,999"):
        read_batches(LAYOUT, tmp_path, "test")


@pytest.mark.parametrize("names", [3, {"cat": 1}, [1, 2], None])
def test_class_names_of_a_wrong_type_raise(tmp_path, names):
    (tmp_path / LAYOUT.meta_file).write_bytes(pickle.dumps({LAYOUT.names_key.encode(): names}, protocol=2))
    with pytest.raises(DataError, match="does not contain a list of class names"):
        read_class_names(LAYOUT, tmp_path)
