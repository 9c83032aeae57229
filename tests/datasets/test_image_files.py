"""Picture files, many at once."""

import threading

import numpy as np
import pytest
from PIL import Image

from driftlaw.datasets import image_files as pictures
from driftlaw.datasets.image_files import files_sha256, read_pictures, size_of
from driftlaw.errors import DataError


@pytest.fixture
def paths(tmp_path):
    made = []
    for number in range(40):
        made.append(tmp_path / f"{number}.png")
        Image.new("RGB", (7, 5), (number, 2 * number, 0)).save(made[-1])
    return made


def unchanged(picture):
    return picture


@pytest.mark.parametrize("threads", [1, 4])
def test_pictures_come_in_the_order_asked_for(paths, threads, monkeypatch):
    monkeypatch.setattr(pictures, "THREADS", threads)
    found = read_pictures(paths[::-1], (5, 7), unchanged)
    assert found.shape == (40, 5, 7, 3)
    assert found[:, 0, 0, 0].tolist() == list(range(39, -1, -1))
    assert size_of(paths[0]) == (5, 7)


def test_several_threads_read_and_few_pictures_are_open_at_a_time(paths, monkeypatch):
    monkeypatch.setattr(pictures, "THREADS", 4)
    lock, meeting = threading.Lock(), threading.Barrier(4, timeout=10)
    under_way, most = 0, 0

    def slow(picture):
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        meeting.wait()  # only passes where four are read at the same time
        with lock:
            under_way -= 1
        return picture

    read_pictures(paths, (5, 7), slow)
    assert most == 4


@pytest.mark.parametrize("threads", [1, 4])
def test_the_first_wrong_picture_is_told(paths, threads, monkeypatch):
    monkeypatch.setattr(pictures, "THREADS", threads)
    paths[30].write_bytes(b"")
    Image.new("RGB", (6, 5)).save(paths[20])
    with pytest.raises(DataError, match=r"20\.png is 6×5 pixels; expected 7×5"):
        read_pictures(paths, (5, 7), unchanged)
    with pytest.raises(DataError, match=r"30\.png cannot be read"):
        read_pictures(paths[21:], (5, 7), unchanged)


def test_nothing_asked_for_is_nothing_read():
    assert read_pictures([], (5, 7), unchanged).shape == (0, 5, 7, 3)


def test_the_hash_follows_names_and_bytes(paths, tmp_path):
    whole = files_sha256(tmp_path, paths)
    assert files_sha256(tmp_path, paths) == whole
    assert files_sha256(tmp_path, paths[:-1]) != whole
    paths[3].rename(tmp_path / "other.png")
    renamed = [*paths[:3], tmp_path / "other.png", *paths[4:]]
    assert files_sha256(tmp_path, renamed) != whole


def test_of_very_many_files_names_and_sizes_are_hashed(paths, tmp_path, monkeypatch):
    whole = files_sha256(tmp_path, paths)
    monkeypatch.setattr(pictures, "HASHED_WHOLE", 39)
    by_size = files_sha256(tmp_path, paths)
    assert by_size != whole
    content = paths[0].read_bytes()
    paths[0].write_bytes(content[::-1])
    assert files_sha256(tmp_path, paths) == by_size
    paths[0].write_bytes(content + b" ")
    assert files_sha256(tmp_path, paths) != by_size


def test_grey_becomes_rgb(tmp_path):
    Image.new("L", (7, 5), 9).save(tmp_path / "grey.png")
    assert (read_pictures([tmp_path / "grey.png"], (5, 7), unchanged) == np.full((5, 7, 3), 9)).all()
