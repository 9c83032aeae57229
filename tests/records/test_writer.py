"""A record being written."""

import errno
import os
import resource

import pytest

from driftlaw.errors import DataError
from driftlaw.records import RecordWriter, dump_line, read_lines
from driftlaw.records.writer import lines_on_disk

LINES = [{"batch": number, "wrong": 3} for number in range(4)]


def test_lines_are_on_disk_one_by_one(tmp_path):
    path = tmp_path / "deep" / "run.jsonl"
    with RecordWriter(path) as record:
        for count, line in enumerate(LINES, start=1):
            record.write(line)
            assert read_lines(path) == LINES[:count]
        record.sync()
    assert path.read_bytes() == b"".join(map(dump_line, LINES))


def test_a_record_that_another_writes_is_refused_and_not_touched(tmp_path):
    path = tmp_path / "run.jsonl"
    with RecordWriter(path) as first:
        first.write({"a": 1})
        for keep_lines in (0, 1):
            with pytest.raises(DataError, match="being written by another process"):
                RecordWriter(path, keep_lines=keep_lines)
        first.write({"b": 2})
    assert read_lines(path) == [{"a": 1}, {"b": 2}]
    with RecordWriter(path, keep_lines=1) as next_one:
        next_one.write({"c": 3})
    assert read_lines(path) == [{"a": 1}, {"c": 3}]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_a_closed_record_is_free_though_a_forked_process_has_it_open(tmp_path):
    writer = RecordWriter(tmp_path / "run.jsonl")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(reading, 1)
        os._exit(0)
    writer.close()
    RecordWriter(tmp_path / "run.jsonl").close()
    os.write(writing, b"x")
    assert os.waitpid(child, 0)[1] == 0


def test_a_new_record_replaces_an_old_one(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"something older and longer than the new one\n" * 9)
    with RecordWriter(path) as record:
        record.write(LINES[0])
    assert read_lines(path) == LINES[:1]


@pytest.mark.parametrize("after", [b"", b'{"batch":2', b'{"batch":2,"wrong":0}\n{"batch":3'])
def test_a_reopened_record_is_cut_to_the_line_of_its_checkpoint(tmp_path, after):
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"".join(map(dump_line, LINES[:2])) + after)
    with RecordWriter(path, keep_lines=2) as record:
        assert read_lines(path) == LINES[:2]
        for line in LINES[2:]:
            record.write(line)
    assert path.read_bytes() == b"".join(map(dump_line, LINES))


@pytest.mark.parametrize("content", [b"", dump_line(LINES[0]), dump_line(LINES[0]) + b'{"batch":1'])
def test_a_record_shorter_than_its_checkpoint_is_refused_and_kept(tmp_path, content):
    path = tmp_path / "run.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"run\.jsonl ends before line 2, but its checkpoint is later"):
        RecordWriter(path, keep_lines=2)
    assert path.read_bytes() == content


def test_a_record_that_vanished_beside_its_checkpoint_is_told(tmp_path):
    with pytest.raises(DataError, match="ends before line 2"):
        RecordWriter(tmp_path / "run.jsonl", keep_lines=2)
    assert os.listdir(tmp_path) == []


class FullDisk:
    """A file that takes ``room`` more bytes and then no more."""

    def __init__(self, file, room):
        self.file, self.room = file, room

    def write(self, data):
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = self.file.write(data[: self.room])
        self.room -= taken
        return taken

    def __getattr__(self, name):
        return getattr(self.file, name)


def test_a_full_disk_leaves_whole_lines_and_the_same_command_goes_on(tmp_path):
    path = tmp_path / "run.jsonl"
    record = RecordWriter(path)
    record.write(LINES[0])
    record._file = FullDisk(record._file, room=7)
    with pytest.raises(DataError, match=r"cannot write .*run\.jsonl: No space left on device; make room"), record:
        record.write(LINES[1])
    assert path.read_bytes() == dump_line(LINES[0])
    with RecordWriter(path, keep_lines=1) as record:
        for line in LINES[1:]:
            record.write(line)
    assert read_lines(path) == LINES


def test_a_writer_goes_on_at_a_line_when_room_comes_back(tmp_path):
    path = tmp_path / "run.jsonl"
    with RecordWriter(path) as record:
        record.write(LINES[0])
        disk, record._file = record._file, FullDisk(record._file, room=7)
        with pytest.raises(DataError):
            record.write(LINES[1])
        record._file = disk
        for line in LINES[1:]:
            record.write(line)
    assert read_lines(path) == LINES


def test_the_operating_systems_own_limit_leaves_whole_lines(tmp_path):
    path = tmp_path / "run.jsonl"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    record = RecordWriter(path)
    record.write(LINES[0])
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(dump_line(LINES[0])) + 5, hard))
        with pytest.raises(DataError, match="File too large"):
            record.write(LINES[1])
        record.close()  # nothing is left in a buffer that closing would write
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == dump_line(LINES[0])


def test_a_line_that_json_cannot_say_leaves_no_trace(tmp_path):
    path = tmp_path / "run.jsonl"
    with RecordWriter(path) as record:
        record.write(LINES[0])
        with pytest.raises(ValueError):
            record.write({"loss": float("nan")})
        record.write(LINES[1])
    assert read_lines(path) == LINES[:2]


def test_a_place_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match="cannot be made"):
        RecordWriter(tmp_path / "file" / "run.jsonl")
    (tmp_path / "run.jsonl").mkdir()
    with pytest.raises(DataError, match=r"cannot write .*Is a directory"):
        RecordWriter(tmp_path / "run.jsonl")


def test_lines_on_disk_are_none_where_there_is_no_file(tmp_path):
    assert lines_on_disk(tmp_path / "none.jsonl") == []
    (tmp_path / "run.jsonl").write_bytes(dump_line(LINES[0]) + b"{")
    assert lines_on_disk(tmp_path / "run.jsonl") == LINES[:1]
