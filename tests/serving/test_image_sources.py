"""Image sources: files that are being written, files that appear, and frames of a video."""

import os
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from driftlaw.errors import DataError, UsageError
from driftlaw.serving import image_sources
from driftlaw.serving.image_sources import FolderSource, VideoSource
from driftlaw.serving.network_input import NetworkInput

SIZE = NetworkInput(4, 4)


class Clock:
    """Replaces the module ``time``; ``sleep`` calls what was planned for that moment."""

    def __init__(self):
        self.now, self.plans, self.sleeps = 1000.0, [], 0

    def monotonic(self):
        return self.now

    time = monotonic

    def sleep(self, seconds):
        self.now += seconds
        self.sleeps += 1
        assert self.sleeps < 200, "the source waits for ever"
        if self.plans:
            self.plans.pop(0)()


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(image_sources, "time", clock)
    return clock


@pytest.fixture
def write(tmp_path, clock):
    """Return a function that writes a file which was changed now, by the clock of the test."""

    def write(name, data=None, age=0.0):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        if data is None:
            Image.new("RGB", (4, 4), "red").save(path, "PNG")
        else:
            path.write_bytes(data)
        os.utime(path, (clock.now - age, clock.now - age))
        return path

    return write


def names(source):
    """Return the names of all arrivals until the source ends."""
    return [arrival.key["file"] for arrival in source if arrival is not None]


def test_old_images_are_read_at_once_in_natural_order_with_subfolders(tmp_path, write, clock):
    for name in ("10.png", "9.png", "b/1.jpg", ".hidden.png", ".git/2.png", "notes.txt"):
        write(name, age=60)
    assert names(FolderSource(tmp_path, SIZE, once=True)) == ["b/1.jpg", "9.png", "10.png"]
    assert clock.sleeps == 0


def test_images_that_appear_are_read_when_they_are_unchanged_for_a_while(tmp_path, write, clock):
    seen = []
    source = iter(FolderSource(tmp_path, SIZE, settle=0.5))
    assert next(source) is None
    clock.plans = [lambda: write("1.png"), lambda: seen.append(clock.now)]
    arrival = next(arrival for arrival in source if arrival is not None)
    assert arrival.key == {"file": "1.png"}
    assert clock.now >= seen[0] - image_sources.POLL + 0.5


def test_file_that_grows_is_not_read_before_it_is_complete(tmp_path, write, clock):
    complete = write("1.png", age=60).read_bytes()
    half = len(complete) // 2
    write("1.png", complete[:half])
    clock.plans = [lambda part=part: write("1.png", complete[: half + part]) for part in range(1, 8)]
    clock.plans.append(lambda: write("1.png", complete))
    (arrival,) = [arrival for arrival in FolderSource(tmp_path, SIZE, settle=0.5, once=True) if arrival]
    assert not arrival.error
    assert arrival.pixels.shape == (4, 4, 3)


def test_writer_that_pauses_is_waited_for(tmp_path, write, clock):
    complete = write("1.png", age=60).read_bytes()
    write("1.png", complete[:50])
    clock.plans = [lambda: None] * 8 + [lambda: write("1.png", complete)]
    (arrival,) = [arrival for arrival in FolderSource(tmp_path, SIZE, settle=0.5, once=True) if arrival]
    assert not arrival.error


def test_file_that_stays_incomplete_is_reported_once(tmp_path, write, clock):
    write("1.png", b"\x89PNG")
    write("2.png", age=60)
    first, second = [arrival for arrival in FolderSource(tmp_path, SIZE, settle=0.5, once=True) if arrival]
    assert first.key == {"file": "2.png"}
    assert second.key == {"file": "1.png"}
    assert "cannot be read as an image" in second.error
    assert clock.now >= 1000 + image_sources.PATIENCE


def test_file_that_disappears_is_not_reported(tmp_path, write, clock):
    path = write("1.png", b"no image")
    clock.plans = [path.unlink]
    assert names(FolderSource(tmp_path, SIZE, once=True)) == []


def test_clock_of_a_file_server_that_is_behind_does_not_matter(tmp_path, write, clock):
    source = iter(FolderSource(tmp_path, SIZE, settle=0.5))
    assert next(source) is None
    complete = write("1.png").read_bytes()
    write("1.png", complete[:40], age=3600)
    clock.plans = [lambda: None] * 4 + [lambda: write("1.png", complete, age=3600)]
    assert not next(arrival for arrival in source if arrival is not None).error


def test_link_to_nothing_and_pipe_do_not_stop_the_source(tmp_path, write, clock):
    (tmp_path / "broken.png").symlink_to(tmp_path / "nothing")
    os.mkfifo(tmp_path / "pipe.png")
    write("1.png", age=60)
    arrivals = [arrival for arrival in FolderSource(tmp_path, SIZE, once=True) if arrival]
    assert {arrival.key["file"]: bool(arrival.error) for arrival in arrivals} == {"1.png": False, "pipe.png": True}


def test_name_that_is_not_unicode_is_escaped(tmp_path, clock):
    name = os.fsdecode(b"\xff.png")
    try:
        Image.new("RGB", (4, 4)).save(tmp_path / name)
    except OSError:
        pytest.skip("the file system refuses such names")
    os.utime(tmp_path / name, (0, 0))
    assert names(FolderSource(tmp_path, SIZE, once=True)) == ["\\udcff.png"]


class FakeCapture:
    """Replaces cv2.VideoCapture: six frames whose blue channel is their number."""

    def __init__(self, source):
        self.position = 0
        self.opened = source not in ("closed.mp4", 7)

    def isOpened(self):
        return self.opened

    def grab(self):
        self.position += 1
        return self.position <= 6

    def read(self):
        if not self.grab():
            return False, None
        return True, np.full((5, 6, 3), [self.position - 1, 100, 200], np.uint8)


@pytest.fixture
def opencv(monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", SimpleNamespace(VideoCapture=FakeCapture))


@pytest.mark.usefixtures("opencv")
def test_frames_are_numbered_and_red_green_blue():
    arrivals = list(VideoSource("drive.mp4", SIZE))
    assert [arrival.key["frame"] for arrival in arrivals] == list(range(6))
    assert [arrival.pixels[0, 0].tolist() for arrival in arrivals] == [[200, 100, number] for number in range(6)]


@pytest.mark.usefixtures("opencv")
def test_video_is_read_again_from_the_checkpoint_and_then_continues():
    source = VideoSource("drive.mp4", SIZE, start=4)
    assert [source.read({"frame": frame}).getpixel((0, 0))[2] for frame in (2, 3)] == [2, 3]
    assert [arrival.key["frame"] for arrival in source] == [4, 5]


@pytest.mark.usefixtures("opencv")
def test_camera_continues_its_numbers_and_has_no_earlier_frames():
    source = VideoSource("0", SIZE, start=10)
    assert source.read({"frame": 9}) is None
    arrivals = iter(source)
    assert [next(arrivals).key["frame"] for _ in range(6)] == list(range(10, 16))
    with pytest.raises(DataError, match="returned no frame"):
        next(arrivals)


@pytest.mark.usefixtures("opencv")
@pytest.mark.parametrize("source", ["closed.mp4", "7"])
def test_source_that_cannot_be_opened_is_an_error(source):
    with pytest.raises(DataError, match="OpenCV cannot open"):
        VideoSource(source, SIZE)


def test_missing_opencv_is_an_error_that_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(UsageError, match="pip install opencv-python-headless"):
        VideoSource("0", SIZE)


def test_frames_of_a_real_video(tmp_path):
    cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
    path = str(tmp_path / "video.avi")
    writer = cv2.VideoWriter(path, cv2.VideoWriter.fourcc(*"MJPG"), 10, (32, 32))
    for number in range(5):
        writer.write(np.full((32, 32, 3), [0, 0, 40 * number], np.uint8))
    writer.release()
    source = VideoSource(path, NetworkInput(32, 32), start=2)
    reds = [int(arrival.pixels[:, :, 0].mean()) for arrival in source]
    assert reds == pytest.approx([80, 120, 160], abs=10)
