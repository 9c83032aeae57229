"""Files are there whole or not at all."""

import errno
import os

import pytest

from driftlaw.errors import DataError
from driftlaw.files import atomic_path, sha256_of, writable_folder


def test_a_finished_file_takes_its_place_and_makes_its_folder(tmp_path):
    target = tmp_path / "new" / "folder" / "a.txt"
    with atomic_path(target) as path:
        path.write_text("whole")
        assert path.parent == target.parent
        assert path.suffix == ".txt"
        assert not target.exists()
    assert target.read_text() == "whole"
    assert os.listdir(target.parent) == ["a.txt"]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    target = tmp_path / "a.txt"
    target.write_text("old")
    with pytest.raises(ZeroDivisionError), atomic_path(target) as path:
        path.write_bytes(b"half" * (1 // len(path.read_bytes())))
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_full_disk_is_told_in_words_and_leaves_nothing(tmp_path):
    with pytest.raises(DataError, match="no space left on the disk"), atomic_path(tmp_path / "a.bin"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert os.listdir(tmp_path) == []


def test_other_trouble_keeps_its_own_name(tmp_path):
    with pytest.raises(FileNotFoundError), atomic_path(tmp_path / "a.bin"):
        (tmp_path / "missing").read_bytes()


def test_a_writer_that_removes_its_file_leaves_nothing(tmp_path):
    with pytest.raises(FileNotFoundError), atomic_path(tmp_path / "a.bin") as path:
        path.unlink()
    assert os.listdir(tmp_path) == []


def test_a_file_where_a_folder_should_be_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be made"):
        writable_folder(tmp_path / "file" / "below")


def test_a_new_file_is_as_readable_as_any_other(tmp_path):
    (tmp_path / "plain").write_text("")
    with atomic_path(tmp_path / "atomic") as path:
        path.write_text("")
    assert (tmp_path / "atomic").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_sha256_is_that_of_the_bytes(tmp_path):
    (tmp_path / "abc").write_bytes(b"abc")
    assert sha256_of(tmp_path / "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
