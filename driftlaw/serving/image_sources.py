"""Image sources of ``driftlaw watch``: a folder that fills up, and the frames of a video or camera."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from driftlaw.datasets.image_files import open_image
from driftlaw.datasets.image_folder import image_files, natural_key
from driftlaw.datasets.protocol import Pixels
from driftlaw.errors import DataError, UsageError, printable
from driftlaw.serving.network_input import NetworkInput, upright_rgb

POLL = 0.25  # seconds between two looks at a folder
Found = dict[str, tuple[Path, tuple[int, int], float]]  # by name: size and modification time, and since when
PATIENCE = 5.0  # seconds without a change after which a file that cannot be decoded is reported


class Arrival(NamedTuple):
    """An image that arrived, in the size of the network, uint8 (h, w, 3), or the reason why it cannot be read."""

    key: dict[str, Any]  # {"file": NAME} or {"frame": NUMBER}
    pixels: Pixels | None
    error: str = ""
    original: Image.Image | None = None  # in its own size, for a network that predicts a class per pixel

    @classmethod
    def of(cls, key: dict[str, Any], image: Image.Image, size: NetworkInput) -> Arrival:
        """Return an image that fits a network."""
        return cls(key, np.asarray(size.fit(image)), original=image if size.is_dense else None)


class FolderSource:
    """Images of a folder and its sub-folders: those that exist, in natural order of names, then those that appear.

    A file is read once it has not changed for ``settle`` seconds, because it may still be written. A file that cannot
    be decoded is tried again until it has not changed for five seconds. Hidden files are ignored.

    Args:
        folder: the folder.
        size: size of the images that are returned.
        settle: seconds without a change after which a file counts as complete.
        once: end when all images were read.
        done: names of the images that are left out; grows with every image.
    """

    def __init__(
        self, folder: Path, size: NetworkInput, *, settle: float = 0.5, once: bool = False, done: set[str] | None = None
    ) -> None:
        self.folder, self.size, self.settle, self.once = folder, size, settle, once
        self.done = set() if done is None else done
        self._failed: set[str] = set()

    def __iter__(self) -> Iterator[Arrival | None]:
        """Yield images as they become complete, and None when there is nothing to read."""
        found: Found | None = None
        while True:
            started = time.monotonic()
            found = self._look(found)
            now, count = time.monotonic(), len(self.done)
            for name in sorted(found, key=lambda name: natural_key(Path(name))):
                path, _, since = found[name]
                unchanged = now - since
                if unchanged < (PATIENCE if name in self._failed else self.settle):
                    continue
                try:
                    arrival = Arrival.of({"file": name}, _read(path), self.size)
                except DataError as error:
                    self._failed.add(name)
                    if unchanged < PATIENCE or not path.exists():
                        continue
                    arrival = Arrival({"file": name}, None, str(error))
                self.done.add(name)
                yield arrival
            if len(self.done) == count:
                yield None
                if self.once and not found:
                    return
                time.sleep(max(POLL, now - started))  # a folder of a million files takes seconds to list

    def read(self, key: dict[str, Any]) -> Image.Image | None:
        """Return an image that was read before; None if its file no longer exists or cannot be read."""
        try:
            return _read(self.folder / key["file"])
        except DataError:
            return None

    def _look(self, before: Found | None) -> Found:
        """Return the images that were not read yet; ``before`` is the result of the last call."""
        found: Found = {}
        now, clock = time.monotonic(), time.time()
        for path in image_files(self.folder):
            name = printable(path.relative_to(self.folder).as_posix())
            try:
                status = None if name in self.done else path.stat()
            except OSError:  # deleted, or a link to a file that does not exist
                continue
            if status is not None:
                signature, since = (status.st_size, status.st_mtime_ns), now
                if before is None:  # later the clock of a file server is not trusted
                    since -= max(0.0, clock - status.st_mtime)
                elif name in before and before[name][1] == signature:
                    since = before[name][2]
                found[name] = path, signature, since
        return found


class VideoSource:
    """Frames of a video file, or of a camera or network stream. Needs OpenCV.

    Args:
        source: a file, the number of a camera, or an address such as ``rtsp://…``.
        size: size of the frames that are returned.
        start: number of the first frame to return.

    Raises:
        UsageError: OpenCV is not installed.
        DataError: the source cannot be opened.
    """

    def __init__(self, source: str, size: NetworkInput, *, start: int = 0) -> None:
        try:
            import cv2
        except ImportError as error:
            raise UsageError(f"'{source}' needs OpenCV. Install it: pip install opencv-python-headless") from error
        self.source, self.size, self.start = source, size, start
        self._capture = cv2.VideoCapture(int(source) if source.isdigit() else source)
        if not self._capture.isOpened():
            raise DataError(f"OpenCV cannot open '{source}'. Check the camera, or the file and its format.")
        self._next = start if is_live(source) else 0

    def __iter__(self) -> Iterator[Arrival | None]:
        """Yield frames until the video ends."""
        for number in itertools.count(self.start):
            frame = self.read({"frame": number})
            if frame is None and is_live(self.source):
                raise DataError(f"'{self.source}' returned no frame. Check the camera, then run the same command.")
            if frame is None:
                return
            yield Arrival.of({"frame": number}, frame, self.size)

    def read(self, key: dict[str, Any]) -> Image.Image | None:
        """Return a frame, which must not be before the last one that was read; None if there is no such frame."""
        while self._next < key["frame"] and self._capture.grab():  # setting the position is not exact in many formats
            self._next += 1
        returned, frame = self._capture.read() if self._next == key["frame"] else (False, None)
        if not returned or frame is None:
            return None
        self._next += 1
        return Image.fromarray(np.ascontiguousarray(frame[:, :, ::-1]))


def is_live(source: str) -> bool:
    """Return True for the number of a camera and for an address, whose frames cannot be read again."""
    return source.isdigit() or "://" in source


def _read(path: Path) -> Image.Image:
    with open_image(path) as image:
        return upright_rgb(image)
