"""Atomic writes, errors about directories, checksums."""

import errno
import os
import subprocess
import sys

import pytest

from driftlaw.errors import DataError
from driftlaw.files import atomic_path, delete_leftovers, disk_full_error, sha256_of, writable_folder


def test_atomic_path_creates_the_folder_and_the_complete_file(tmp_path):
    target = tmp_path / "new" / "folder" / "a.txt"
    with atomic_path(target) as path:
        path.write_text("whole")
        assert path.parent == target.parent
        assert path.suffix == ".txt"
        assert not target.exists()
    assert target.read_text() == "whole"
    assert os.listdir(target.parent) == ["a.txt"]


def test_failed_write_keeps_the_old_file(tmp_path):
    target = tmp_path / "a.txt"
    target.write_text("old")
    with pytest.raises(ZeroDivisionError), atomic_path(target) as path:
        path.write_bytes(b"half" * (1 // len(path.read_bytes())))
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_full_disk_is_a_data_error_and_leaves_no_file(tmp_path):
    with pytest.raises(DataError, match="No space left on the disk"), atomic_path(tmp_path / "a.bin"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert os.listdir(tmp_path) == []


def test_full_disk_behind_another_error_is_reported(tmp_path):
    def fail_as_torch():
        try:
            raise OSError(errno.EDQUOT, "Disk quota exceeded")
        finally:
            raise RuntimeError("unexpected pos 576 vs 534")

    with pytest.raises(DataError, match="No space left on the disk"), disk_full_error(tmp_path):
        fail_as_torch()
    with pytest.raises(RuntimeError), disk_full_error(tmp_path):
        raise RuntimeError("something else")


def test_full_disk_of_a_writer_without_errno_is_reported(tmp_path):
    with pytest.raises(DataError, match="No space left on the disk"), disk_full_error(tmp_path):
        raise RuntimeError("I/O error: No space left on device (os error 28)")  # as safetensors does


def test_pipes_are_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match=r"pipe is not a regular file\. Remove it"):
        sha256_of(tmp_path / "pipe")
    with pytest.raises(DataError, match="/dev/zero is not a regular file"):
        sha256_of("/dev/zero")


@pytest.mark.parametrize("stem", ["a", "a" * 80, "a" * 200])
def test_leftovers_of_a_killed_process_are_deleted_by_their_whole_name(tmp_path, stem):
    target, kept = tmp_path / f"{stem}.txt", []
    for name in (".a.part.txt", ".ac.12345678.part.txt", ".a.12345678.part.json", "a.12345678.part.txt"):
        (tmp_path / name).write_text("")
        kept.append(name)
    code = f"""
import os
from pathlib import Path
from driftlaw.files import atomic_path
with atomic_path(Path({str(target)!r})):
    os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", code], check=False)
    assert len(os.listdir(tmp_path)) == len(kept) + 1
    delete_leftovers(target.with_name(f"{stem}b.txt"))  # another file, even if its name is as long
    assert len(os.listdir(tmp_path)) == len(kept) + 1
    delete_leftovers(target)
    assert sorted(os.listdir(tmp_path)) == sorted(kept)


def test_other_errors_are_not_changed(tmp_path):
    with pytest.raises(FileNotFoundError), atomic_path(tmp_path / "a.bin"):
        (tmp_path / "missing").read_bytes()


def test_writer_that_deletes_its_file_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError), atomic_path(tmp_path / "a.bin") as path:
        path.unlink()
    assert os.listdir(tmp_path) == []


def test_file_in_place_of_a_folder_is_a_data_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="Cannot create directory"):
        writable_folder(tmp_path / "file" / "below")


def test_new_file_has_default_permissions(tmp_path):
    (tmp_path / "plain").write_text("")
    with atomic_path(tmp_path / "atomic") as path:
        path.write_text("")
    assert (tmp_path / "atomic").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_sha256_of_known_bytes(tmp_path):
    (tmp_path / "abc").write_bytes(b"abc")
    assert sha256_of(tmp_path / "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
