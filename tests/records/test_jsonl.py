"""One JSON document a line."""

import gzip
import math

import pytest

from driftlaw.errors import DataError
from driftlaw.records.jsonl import content_hash, dump_line, first_line, read_lines


def written(tmp_path, content, name="run.jsonl"):
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz"])
def test_what_was_dumped_is_read_back(tmp_path, name):
    lines = [{"b": 0.1, "a": [1, None]}, {"title": "Größe «x»"}]
    path = written(tmp_path, b"".join(map(dump_line, lines)), name)
    assert read_lines(path) == lines
    assert list(read_lines(path)[0]) == ["b", "a"]
    assert first_line(path) == dump_line(lines[0])


def test_a_line_is_compact_utf8_and_ends_once():
    assert dump_line({"b": "é", "a": 1.5}) == '{"b":"é","a":1.5}\n'.encode()
    assert dump_line({"a": "x\ny"}).count(b"\n") == 1


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_number_that_json_cannot_say_is_not_written(number):
    with pytest.raises(ValueError):
        dump_line({"loss": number})


@pytest.mark.parametrize("torn", [b'{"batch":1,"wro', b'{"batch":1}', b"\xc3"])
@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz"])
def test_a_torn_last_line_is_left_out(tmp_path, torn, name):
    assert read_lines(written(tmp_path, b'{"batch":0}\n' + torn, name)) == [{"batch": 0}]


@pytest.mark.parametrize("content", [b"", b'{"batch":0'])
def test_a_file_without_a_whole_line_has_none(tmp_path, content):
    assert read_lines(written(tmp_path, content)) == []


@pytest.mark.parametrize(
    "damage", [b'{"batch":1', b"", b"\xff\xfe", b"\x00" * 20], ids=["torn", "empty", "no text", "zeros"]
)
def test_damage_elsewhere_is_told_with_file_and_line(tmp_path, damage):
    path = written(tmp_path, b'{"batch":0}\n' + damage + b'\n{"batch":2}\n')
    with pytest.raises(DataError, match=r"run\.jsonl, line 2 is not JSON .*damaged"):
        read_lines(path)


def test_a_line_that_is_no_object_is_refused(tmp_path):
    with pytest.raises(DataError, match="line 1 is a list, expected an object"):
        read_lines(written(tmp_path, b"[1]\n"))


@pytest.mark.parametrize(
    "content",
    [
        b"not gzip at all",
        gzip.compress(b'{"batch":0}\n' * 100)[:-20],
        gzip.compress(b'{"batch":0}\n' * 100)[:12] + b"\x00\xff" * 40,
    ],
    ids=["no gzip", "truncated", "overwritten"],
)
def test_a_damaged_gzip_file_is_told(tmp_path, content):
    path = tmp_path / "run.jsonl.gz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"cannot read the record .*run\.jsonl\.gz"):
        read_lines(path)


def test_a_missing_file_and_a_folder_are_told(tmp_path):
    with pytest.raises(DataError, match="no record at"):
        read_lines(tmp_path / "none.jsonl")
    with pytest.raises(DataError, match="cannot read the record"):
        read_lines(tmp_path)


def test_the_hash_of_content_does_not_know_the_order_of_keys():
    assert content_hash({"a": 1, "b": [1, 2]}) == content_hash({"b": [1, 2], "a": 1})
    assert content_hash({"a": 1, "b": [1, 2]}) != content_hash({"a": 1, "b": [2, 1]})
    assert len(content_hash({})) == 64
