"""Tests of driftlaw.records.writer."""

import errno
import os
import resource
import shutil
import subprocess
import sys

import pytest

from driftlaw.errors import DataError
from driftlaw.files import sha256_of
from driftlaw.records import RecordWriter, dump_line, read_lines

LINES = [{"batch": number, "wrong": 3} for number in range(4)]


def test_each_line_is_on_disk_after_write(tmp_path):
    path = tmp_path / "deep" / "run.jsonl"
    with RecordWriter(path) as record:
        for count, line in enumerate(LINES, start=1):
            record.write(line)
            assert read_lines(path) == LINES[:count]
        record.sync()
    assert path.read_bytes() == b"".join(map(dump_line, LINES))


def test_second_writer_is_refused_and_changes_nothing(tmp_path):
    path = tmp_path / "run.jsonl"
    with RecordWriter(path) as first:
        first.write({"a": 1})
        for keep_lines in (0, 1):
            with pytest.raises(DataError, match="being written by another process"):
                RecordWriter(path, keep_lines=keep_lines)
        first.write({"b": 2})
    assert read_lines(path) == [{"a": 1}, {"b": 2}]
    with RecordWriter(path, keep_lines=1) as second:
        second.write({"c": 3})
    assert read_lines(path) == [{"a": 1}, {"c": 3}]


def test_closing_releases_the_lock_while_another_process_still_has_the_file_open(tmp_path):
    path = tmp_path / "run.jsonl"
    writer = RecordWriter(path)
    descriptors = [writer._file.fileno(), writer._lock._context.lock_file_fd]
    child = subprocess.Popen([sys.executable, "-c", "input()"], pass_fds=descriptors, stdin=subprocess.PIPE)
    try:
        writer.close()
        RecordWriter(path).close()
        assert os.listdir(tmp_path) == ["run.jsonl"]  # no lock file is left
    finally:
        child.communicate(b"\n")


def test_record_of_a_killed_writer_can_be_opened(tmp_path):
    path = tmp_path / "run.jsonl"
    code = f"""
import os
from pathlib import Path
from driftlaw.records import RecordWriter
writer = RecordWriter(Path({str(path)!r}))
writer.write({{"a": 1}})
os.kill(os.getpid(), 9)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    with RecordWriter(path, keep_lines=1) as record:
        record.write({"b": 2})
    assert read_lines(path) == [{"a": 1}, {"b": 2}]


def test_new_record_replaces_old_file(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"something older and longer than the new one\n" * 9)
    with RecordWriter(path) as record:
        record.write(LINES[0])
    assert read_lines(path) == LINES[:1]


@pytest.mark.parametrize("after", [b"", b'{"batch":2', b'{"batch":2,"wrong":0}\n{"batch":3'])
def test_reopened_record_is_truncated_to_its_checkpoint(tmp_path, after):
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"".join(map(dump_line, LINES[:2])) + after)
    with RecordWriter(path, keep_lines=2) as record:
        assert read_lines(path) == LINES[:2]
        for line in LINES[2:]:
            record.write(line)
    assert path.read_bytes() == b"".join(map(dump_line, LINES))


@pytest.mark.parametrize("content", [b"", dump_line(LINES[0]), dump_line(LINES[0]) + b'{"batch":1'])
def test_record_shorter_than_its_checkpoint_is_refused_and_kept(tmp_path, content):
    path = tmp_path / "run.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"run\.jsonl ends before line 2, but its checkpoint is later"):
        RecordWriter(path, keep_lines=2)
    assert path.read_bytes() == content


def test_missing_record_with_checkpoint_is_refused(tmp_path):
    with pytest.raises(DataError, match="ends before line 2"):
        RecordWriter(tmp_path / "run.jsonl", keep_lines=2)
    assert os.listdir(tmp_path) == []


class FullDisk:
    """A file that accepts ``room`` more bytes and then fails."""

    def __init__(self, file, room):
        self.file, self.room = file, room

    def write(self, data):
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = self.file.write(data[: self.room])
        self.room -= written
        return written

    def __getattr__(self, name):
        return getattr(self.file, name)


def test_full_disk_leaves_complete_lines_and_the_record_can_be_resumed(tmp_path):
    path = tmp_path / "run.jsonl"
    record = RecordWriter(path)
    record.write(LINES[0])
    record._file = FullDisk(record._file, room=7)
    with pytest.raises(DataError, match=r"Cannot write .*run\.jsonl: No space left on device"), record:
        record.write(LINES[1])
    assert path.read_bytes() == dump_line(LINES[0])
    with RecordWriter(path, keep_lines=1) as record:
        for line in LINES[1:]:
            record.write(line)
    assert read_lines(path) == LINES


def test_writer_continues_after_space_is_freed(tmp_path):
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


def test_file_size_limit_leaves_complete_lines(tmp_path):
    path = tmp_path / "run.jsonl"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    record = RecordWriter(path)
    record.write(LINES[0])
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(dump_line(LINES[0])) + 5, hard))
        with pytest.raises(DataError, match="File too large"):
            record.write(LINES[1])
        record.close()  # no buffer that closing would write
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == dump_line(LINES[0])


def test_invalid_line_leaves_the_file_unchanged(tmp_path):
    path = tmp_path / "run.jsonl"
    with RecordWriter(path) as record:
        record.write(LINES[0])
        with pytest.raises(ValueError):
            record.write({"loss": float("nan")})
        record.write(LINES[1])
    assert read_lines(path) == LINES[:2]


def test_unwritable_path_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match="Cannot create directory"):
        RecordWriter(tmp_path / "file" / "run.jsonl")
    (tmp_path / "run.jsonl").mkdir()
    with pytest.raises(DataError, match=r"Cannot write .*Is a directory"):
        RecordWriter(tmp_path / "run.jsonl")


@pytest.mark.parametrize("action", ["delete", "delete folder", "replace"])
def test_deleted_or_replaced_file_is_an_error(tmp_path, action):
    path = tmp_path / "out" / "run.jsonl"
    with RecordWriter(path) as record:
        record.write(LINES[0])
        path.unlink()
        if action == "replace":
            path.write_text("of another process")
        elif action == "delete folder":
            shutil.rmtree(path.parent)
        for write in (lambda: record.write(LINES[1]), record.sync):
            with pytest.raises(DataError, match=r"run\.jsonl was deleted or replaced while the run was writing it"):
                write()
    assert path.parent.exists() == (action != "delete folder")
    assert not path.exists() or path.read_text() == "of another process"


def test_digest_is_that_of_the_file(tmp_path):
    path = tmp_path / "run.jsonl"
    with RecordWriter(path) as record:
        for line in LINES[:3]:
            record.write(line)
        assert record.digest.hexdigest() == sha256_of(path)
    with RecordWriter(path, keep_lines=2) as record:
        record.write(LINES[3])
        assert record.digest.hexdigest() == sha256_of(path)
