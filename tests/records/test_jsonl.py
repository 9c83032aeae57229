"""Tests of driftlaw.records.jsonl."""

import gzip
import json
import math
import os

import pytest

from driftlaw.errors import DataError, UsageError
from driftlaw.records import read_record
from driftlaw.records.jsonl import compress_record, content_hash, dump_line, first_line, read_lines
from tests.reports.example_records import make_record, write_record


def written(tmp_path, content, name="run.jsonl"):
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz"])
def test_lines_are_read_back(tmp_path, name):
    lines = [{"b": 0.1, "a": [1, None]}, {"title": "Größe “x”"}]
    path = written(tmp_path, b"".join(map(dump_line, lines)), name)
    assert read_lines(path) == lines
    assert list(read_lines(path)[0]) == ["b", "a"]
    assert first_line(path) == dump_line(lines[0])


def test_a_surrogate_is_written_as_an_escape():
    assert dump_line({"title": "a\ud800é"}) == b'{"title":"a\\ud800\xc3\xa9"}\n'
    assert json.loads(dump_line({"title": "a\ud800"})) == {"title": "a\ud800"}


def test_line_is_compact_utf8_with_one_newline():
    assert dump_line({"b": "é", "a": 1.5}) == '{"b":"é","a":1.5}\n'.encode()
    assert dump_line({"a": "x\ny"}).count(b"\n") == 1


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_numbers_that_are_not_finite_are_refused(number):
    with pytest.raises(ValueError):
        dump_line({"loss": number})


@pytest.mark.parametrize("incomplete", [b'{"batch":1,"wro', b'{"batch":1}', b"\xc3"])
@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz"])
def test_incomplete_last_line_is_ignored(tmp_path, incomplete, name):
    assert read_lines(written(tmp_path, b'{"batch":0}\n' + incomplete, name)) == [{"batch": 0}]


@pytest.mark.parametrize("content", [b"", b'{"batch":0'])
def test_file_without_complete_line_is_empty(tmp_path, content):
    assert read_lines(written(tmp_path, content)) == []


@pytest.mark.parametrize(
    "damage", [b'{"batch":1', b"", b"\xff\xfe", b"\x00" * 20], ids=["incomplete", "empty", "not text", "zeros"]
)
def test_damaged_line_is_reported_with_file_and_line(tmp_path, damage):
    path = written(tmp_path, b'{"batch":0}\n' + damage + b'\n{"batch":2}\n')
    with pytest.raises(DataError, match=r"damaged: .*run\.jsonl, line 2 is not JSON"):
        read_lines(path)


def test_line_must_be_an_object(tmp_path):
    with pytest.raises(DataError, match="line 1 is a list, expected a JSON object"):
        read_lines(written(tmp_path, b"[1]\n"))


@pytest.mark.parametrize(
    "content",
    [
        b"not gzip at all",
        gzip.compress(b'{"batch":0}\n' * 100)[:-20],
        gzip.compress(b'{"batch":0}\n' * 100)[:12] + b"\x00\xff" * 40,
    ],
    ids=["not gzip", "truncated", "overwritten"],
)
def test_damaged_gzip_file_is_reported(tmp_path, content):
    path = tmp_path / "run.jsonl.gz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"Cannot read the record .*run\.jsonl\.gz"):
        read_lines(path)


def test_missing_file_and_folder_are_refused(tmp_path):
    with pytest.raises(DataError, match="No record at"):
        read_lines(tmp_path / "none.jsonl")
    with pytest.raises(DataError, match="Cannot read the record"):
        read_lines(tmp_path)


def test_content_hash_ignores_the_order_of_keys():
    assert content_hash({"a": 1, "b": [1, 2]}) == content_hash({"b": [1, 2], "a": 1})
    assert content_hash({"a": 1, "b": [1, 2]}) != content_hash({"a": 1, "b": [2, 1]})
    assert len(content_hash({})) == 64


@pytest.mark.parametrize("value", [float("inf"), {1, 2}, {"a": [float("nan")]}], ids=str)
def test_content_hash_refuses_what_is_no_json(value):
    with pytest.raises(UsageError, match="Settings must be finite numbers"):
        content_hash({"tau": value})


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


def test_small_file_that_expands_to_gigabytes_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("driftlaw.records.jsonl.MAX_BYTES", 50_000)
    path = written(tmp_path, b'{"batch":0}\n' * 100_000, "run.jsonl.gz")
    assert path.stat().st_size < 10_000
    with pytest.raises(DataError, match=r"\.gz is too large at line \d+\. .*compressed record 50,000 bytes after"):
        read_lines(path)
    assert len(read_lines(written(tmp_path, b'{"batch":0}\n' * 100_000))) == 100_000


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_long_line_is_refused_before_it_is_read(tmp_path, monkeypatch, end):
    monkeypatch.setattr("driftlaw.records.jsonl.MAX_LINE_BYTES", 1000)
    path = written(tmp_path, b'{"batch":0}\n' + b"x" * 100_000 + end, "run.jsonl.gz")
    with pytest.raises(DataError, match=r"too large at line 2\. A line may have 1,000 bytes"):
        read_lines(path)
    assert len(first_line(written(tmp_path, b"x" * 100_000))) == 1000


def test_deeply_nested_line_is_damaged(tmp_path):
    with pytest.raises(DataError, match="line 2 is not JSON"):
        read_lines(written(tmp_path, b"{}\n" + b"[" * 100_000 + b"\n"))


def test_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "run.jsonl")
    for read in (read_lines, first_line, read_record):
        with pytest.raises(DataError, match="is not a regular file"):
            read(tmp_path / "run.jsonl")
