"""WebDataset shards as datasets: order, labels, sizes, identity, and errors that name shard and sample."""

import gzip
import json
import os
import shutil
import tarfile

import fsspec
import numpy as np
import pytest

from driftlaw.datasets import ShardImages, load_dataset
from driftlaw.datasets.shards import expand_braces
from driftlaw.errors import DataError, UsageError
from tests.datasets.shard_files import SIDE, pixels, png, samples, tar, write_shards


def test_images_and_labels_are_in_the_order_of_shards_and_files(tmp_path):
    dataset = load_dataset(f"shards:{write_shards(tmp_path)}")
    assert len(dataset) == 15
    assert dataset.labels.tolist() == [number % 3 for number in range(15)]
    assert (dataset.num_classes, dataset.image_shape) == (3, (SIDE, SIDE))
    for indices in (range(15), [7, 2, 7, 14]):
        assert np.array_equal(dataset.images(indices), [pixels(number) for number in indices])


def test_distant_images_are_read_one_by_one(tmp_path, monkeypatch):
    monkeypatch.setattr("driftlaw.datasets.shards.MAX_UNUSED_BYTES", 0)
    dataset = ShardImages(write_shards(tmp_path))
    assert np.array_equal(dataset.images([0, 4, 9]), [pixels(number) for number in (0, 4, 9)])


def test_shards_are_read_through_fsspec(tmp_path):
    local = ShardImages(write_shards(tmp_path))
    memory = fsspec.filesystem("memory")
    for path in tmp_path.glob("*.tar"):
        memory.pipe_file(f"{tmp_path}/{path.name}", path.read_bytes())
    for folder in (f"memory://{tmp_path}", f"file://{tmp_path}"):
        dataset = ShardImages(f"{folder}/00.tar|{folder}/{{01..02}}.tar")
        assert np.array_equal(dataset.images(range(15)), local.images(range(15)))
        assert dataset.metadata()["sha256"] == local.metadata()["sha256"]


def test_labels_may_be_in_json_and_other_files_are_ignored(tmp_path):
    files = {
        "__meta__.json": b"{",
        "a/._0.png": b"",
        "a/0.json": json.dumps({"label": 4, "text": "x"}).encode(),
        "a/0.png": png(0),
        "a/0.txt": b"x",
        "b/0.JPEG.png": b"",
        "b/0.PNG": png(1),
        "b/0.cls": b"2\n",
        "b/0.json": b'{"label": 7}',
    }
    (tmp_path / "x.tar").write_bytes(tar(files))
    assert ShardImages(str(tmp_path / "x.tar")).labels.tolist() == [4, 2]
    (tmp_path / "x.tar").write_bytes(tar({"0.png": png(0), "0.json": b'{"width": 8}'}))
    without = ShardImages(str(tmp_path / "x.tar"))
    assert (without.labels.tolist(), without.num_classes) == ([-1], 0)


def test_images_of_several_sizes_are_resized_as_in_folders(tmp_path):
    for number, side in enumerate((300, 20)):
        (tmp_path / f"{number}.png").write_bytes(png(number, side))
    (tmp_path / "x.tar").write_bytes(tar({path.name: path.read_bytes() for path in sorted(tmp_path.glob("*.png"))}))
    shards, folder = ShardImages(f"{tmp_path}/x.tar"), load_dataset(f"folder:{tmp_path}")
    assert shards.image_shape == (224, 224)
    assert np.array_equal(shards.images([0, 1]), folder.images([0, 1]))


def test_a_shard_is_indexed_once_and_again_if_it_changes(tmp_path, monkeypatch):
    pattern = write_shards(tmp_path)
    first = ShardImages(pattern).metadata()["sha256"]
    shutil.copy(tmp_path / "00.tar", tmp_path / "copy.tar")
    os.replace(tmp_path / "copy.tar", tmp_path / "00.tar")
    assert ShardImages(pattern).metadata()["sha256"] == first
    with monkeypatch.context() as patch:
        patch.setattr("driftlaw.datasets.shards.index_shard", lambda address: pytest.fail(f"{address} is read again"))
        ShardImages(pattern)
    files = samples(0, 5)
    for changed in (files | {"0000.png": png(99)}, files | {"0004.cls": b"2"}, dict(list(files.items())[:-2])):
        (tmp_path / "00.tar").write_bytes(tar(changed))
        assert ShardImages(pattern).metadata()["sha256"] != first


def test_files_of_webdataset_are_read(tmp_path):
    webdataset = pytest.importorskip("webdataset")
    with webdataset.ShardWriter(f"{tmp_path}/%02d.tar", maxcount=2, verbose=0) as writer:
        for number in range(4):
            writer.write({"__key__": f"{number:03d}", "png": pixels(number), "cls": number, "json": {"label": 9}})
    dataset = ShardImages(f"{tmp_path}/{{00..01}}.tar")
    assert dataset.labels.tolist() == [0, 1, 2, 3]
    assert np.array_equal(dataset.images(range(4)), [pixels(number) for number in range(4)])


GOOD = samples(0, 4)
BAD = {
    "text": (b"not a tar", "01.tar cannot be read: .*Expected an uncompressed tar file"),
    "compressed": (gzip.compress(tar(GOOD)), "01.tar cannot be read: .*Expected an uncompressed tar file"),
    "truncated": (tar(GOOD)[:2000], "01.tar cannot be read"),
    "no end": (
        tar(GOOD)[: 4 * 4 * tarfile.BLOCKSIZE],
        "01.tar cannot be read: it is truncated or damaged after 4 samples",
    ),
    "damaged header": (
        tar(GOOD)[:2048] + b"?" * 512 + tar(GOOD)[2560:],
        "01.tar cannot be read: it is truncated or damaged",
    ),
    "no samples": (tar({}), "01.tar contains no samples"),
    "no image": (tar(GOOD | {"7.cls": b"1"}), "Sample '7' in .*01.tar has no image"),
    "two images": (tar(GOOD | {"7.png": png(7), "7.jpg": png(7)}), "Sample '7' in .*01.tar has two images"),
    "not an image": (
        tar(GOOD | {"7.png": b"x", "7.cls": b"1"}),
        "Sample '7' in .*01.tar cannot be read as an image: unknown",
    ),
    "no label": (tar(GOOD | {"7.png": png(7)}), "Sample '7' in .*01.tar has no label, unlike the first"),
    "one label": (tar({"6.png": png(6), "7.png": png(7), "7.cls": b"1"}), "Sample '7' in .*01.tar has a label, unlike"),
    "word": (
        tar({"7.png": png(7), "7.cls": b"cat"}),
        "Sample '7' in .*01.tar has the label 'cat' in .cls; expected an int",
    ),
    "float": (tar({"7.png": png(7), "7.json": b'{"label": 1.5}'}), "Sample '7' in .*01.tar has the label 1.5 in .json"),
    "negative": (tar({"7.png": png(7), "7.cls": b"-1"}), "Sample '7' in .*01.tar has the label -1"),
    "unlabelled": (tar(samples(0, 2, labels=False)), "00.tar have labels, but those of .*01.tar have none"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_shard_is_one_error_that_names_it(tmp_path, case):
    pattern = write_shards(tmp_path, 2)
    data, message = BAD[case]
    (tmp_path / "01.tar").write_bytes(data)
    with pytest.raises(DataError, match=message):
        ShardImages(pattern)


def test_a_shard_that_is_missing_or_not_a_file_is_an_error(tmp_path):
    pattern = write_shards(tmp_path, 2)
    (tmp_path / "01.tar").unlink()
    with pytest.raises(DataError, match=r"01.tar does not exist"):
        ShardImages(pattern)
    os.mkfifo(tmp_path / "01.tar")
    with pytest.raises(DataError, match=r"01.tar is not a file"):
        ShardImages(pattern)
    with pytest.raises(DataError, match=r"nowhere://x.tar cannot be read: .*nowhere"):
        ShardImages("nowhere://x.tar")


def test_a_shard_that_changes_while_it_is_used_is_an_error(tmp_path):
    dataset = ShardImages(write_shards(tmp_path, 1))
    good = (tmp_path / "00.tar").read_bytes()
    start = good.index(png(3)[:60]) + 40
    (tmp_path / "00.tar").write_bytes(good[:start] + bytes(100) + good[start + 100 :])
    with pytest.raises(DataError, match=r"Sample '0003' in .*00.tar cannot be read as an image"):
        dataset.images(range(5))
    (tmp_path / "00.tar").write_bytes(good[:1000])
    with pytest.raises(DataError, match=r"00.tar, which has changed since it was indexed, cannot be read as an image"):
        dataset.images([3])
    (tmp_path / "00.tar").unlink()
    with pytest.raises(DataError, match=r"00.tar does not exist"):
        dataset.images([3])


@pytest.mark.parametrize("pattern", ["{5..1}.tar", "{0..999999999}.tar", "{000..999}{000..999}.tar"])
def test_patterns_without_shards_or_with_too_many_are_refused(pattern):
    with pytest.raises(UsageError, match="gives no shards, or more than"):
        expand_braces(pattern)
