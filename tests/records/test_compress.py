"""Tests of driftlaw.records.compress."""

import os

from driftlaw.records import compress_record, read_record
from tests.reports.example_records import make_record, write_record


def test_compressed_record_replaces_the_plain_one(tmp_path):
    path = write_record(make_record("law"), tmp_path / "a.jsonl")
    before = read_record(path)
    packed = compress_record(path)
    assert packed.name == "a.jsonl.gz"
    assert not path.exists()
    assert read_record(packed).batches == before.batches
    assert compress_record(packed) == packed


def test_bytes_depend_on_the_content_only(tmp_path):
    first = write_record(make_record("law"), tmp_path / "a.jsonl")
    second = write_record(make_record("law"), tmp_path / "b.jsonl")
    os.utime(second, (0, 0))
    assert compress_record(first).read_bytes() == compress_record(second).read_bytes()
