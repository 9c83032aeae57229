"""Compressed records: the same lines, the same bytes every time."""

import os

from driftlaw.records import read_record
from driftlaw.records.compress import compress_record
from tests.reports.example_records import make_record, write_record


def test_a_record_reads_the_same_and_the_plain_file_is_gone(tmp_path):
    path = write_record(make_record("law"), tmp_path / "a.jsonl")
    before = read_record(path)
    packed = compress_record(path)
    assert packed.name == "a.jsonl.gz"
    assert not path.exists()
    assert read_record(packed).batches == before.batches
    assert compress_record(packed) == packed


def test_the_same_record_gives_the_same_bytes_whatever_its_name_and_age(tmp_path):
    first = write_record(make_record("law"), tmp_path / "a.jsonl")
    second = write_record(make_record("law"), tmp_path / "b.jsonl")
    os.utime(second, (0, 0))
    assert compress_record(first).read_bytes() == compress_record(second).read_bytes()
