"""Reading image files."""

import threading

import numpy as np
import pytest
from PIL import Image

from driftlaw.datasets import image_files
from driftlaw.datasets.image_files import files_sha256, image_size, read_images
from driftlaw.errors import DataError


@pytest.fixture
def paths(tmp_path):
    files = []
    for number in range(40):
        files.append(tmp_path / f"{number}.png")
        Image.new("RGB", (7, 5), (number, 2 * number, 0)).save(files[-1])
    return files


@pytest.mark.parametrize("threads", [1, 4])
def test_images_are_returned_in_the_requested_order(paths, threads, monkeypatch):
    monkeypatch.setattr(image_files, "THREADS", threads)
    found = read_images(paths[::-1], (5, 7))
    assert found.shape == (40, 5, 7, 3)
    assert found[:, 0, 0, 0].tolist() == list(range(39, -1, -1))
    assert image_size(paths[0]) == (5, 7)


def test_four_threads_read_four_images_at_a_time(paths, monkeypatch):
    monkeypatch.setattr(image_files, "THREADS", 4)
    lock, barrier = threading.Lock(), threading.Barrier(4, timeout=60)
    active, most = 0, 0

    def slow(image):
        nonlocal active, most
        with lock:
            active += 1
            most = max(most, active)
        barrier.wait()  # passes only if four images are read at the same time
        with lock:
            active -= 1
        return image

    read_images(paths, (5, 7), slow)
    assert most == 4


@pytest.mark.parametrize("threads", [1, 4])
def test_first_invalid_image_raises(paths, threads, monkeypatch):
    monkeypatch.setattr(image_files, "THREADS", threads)
    paths[30].write_bytes(b"")
    Image.new("RGB", (6, 5)).save(paths[20])
    with pytest.raises(DataError, match=r"20\.png has 6×5 pixels; expected 7×5"):
        read_images(paths, (5, 7))
    with pytest.raises(DataError, match=r"30\.png cannot be read"):
        read_images(paths[21:], (5, 7))


def test_empty_list_of_files():
    assert read_images([], (5, 7)).shape == (0, 5, 7, 3)


def test_hash_depends_on_names_and_content(paths, tmp_path):
    whole = files_sha256(tmp_path, paths)
    assert files_sha256(tmp_path, paths) == whole
    assert files_sha256(tmp_path, paths[:-1]) != whole
    paths[3].rename(tmp_path / "other.png")
    renamed = [*paths[:3], tmp_path / "other.png", *paths[4:]]
    assert files_sha256(tmp_path, renamed) != whole


def test_many_files_are_hashed_by_name_and_size(paths, tmp_path, monkeypatch):
    whole = files_sha256(tmp_path, paths)
    monkeypatch.setattr(image_files, "MAX_FULLY_HASHED", 39)
    by_size = files_sha256(tmp_path, paths)
    assert by_size != whole
    content = paths[0].read_bytes()
    paths[0].write_bytes(content[::-1])
    assert files_sha256(tmp_path, paths) == by_size
    paths[0].write_bytes(content + b" ")
    assert files_sha256(tmp_path, paths) != by_size


def test_grayscale_becomes_rgb(tmp_path):
    Image.new("L", (7, 5), 9).save(tmp_path / "grey.png")
    assert (read_images([tmp_path / "grey.png"], (5, 7)) == np.full((5, 7, 3), 9)).all()
