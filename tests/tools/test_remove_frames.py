"""Records without frames: nothing else changes, and the copies are valid records."""

import gzip

import pytest
import torch

import driftlaw
from driftlaw.errors import DataError, UsageError
from driftlaw.records import read_record
from driftlaw.testing.fixtures import make_images, tiny_dense_model
from tools.remove_frames import copy_without_frames, main


@pytest.fixture
def record(tmp_path):
    loader = [(make_images(index, count=2), torch.randint(4, (2, 16, 16))) for index in range(3)]
    path = tmp_path / "runs" / "run.jsonl"
    path.parent.mkdir()
    driftlaw.run(loader, driftlaw.adapt(tiny_dense_model(), "norm"), metrics=["frames"], record=path)
    return path


def test_copies_have_no_frames_and_the_same_results(record, tmp_path):
    (copy,) = copy_without_frames(record.parent, tmp_path / "published")
    before, after = read_record(record), read_record(copy)
    assert sum("frame" in line for line in before.batches) == 1
    assert after.header == before.header
    assert after.batches == [{name: line[name] for name in line if name != "frame"} for line in before.batches]
    assert after.mean_iou == before.mean_iou
    assert after.closing["timing"]["record_sha256_with_frames"] == before.closing["timing"]["record_sha256"]
    assert copy_without_frames(copy.parent, tmp_path / "again") == [tmp_path / "again" / "run.jsonl.gz"]
    copy.write_bytes(gzip.compress(gzip.decompress(copy.read_bytes()).replace(b'"wrong":', b'"wrong":1', 1)))
    with pytest.raises(DataError, match="changed after the run"):
        read_record(copy)


def test_the_same_folder_and_unfinished_records_are_refused(record, tmp_path):
    with pytest.raises(UsageError, match="Choose another folder"):
        copy_without_frames(record.parent, record.parent)
    record.write_bytes(b"".join(record.read_bytes().splitlines(keepends=True)[:-1]))
    with pytest.raises(DataError, match="not finished"):
        copy_without_frames(record.parent, tmp_path / "published")
    with pytest.raises(SystemExit, match="not finished"):
        main(record.parent, tmp_path / "published")
    assert not (tmp_path / "published").exists()
