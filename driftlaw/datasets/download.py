"""Download of datasets: resumed after interruptions, verified by sha256, unpacked safely."""

import contextlib
import http.client
import os
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from driftlaw import paths
from driftlaw.datasets.cifar import find_batches, read_batches
from driftlaw.datasets.protocol import content_sha256
from driftlaw.datasets.registry import DatasetInfo
from driftlaw.errors import DataError, UsageError
from driftlaw.files import disk_full_error, sha256_of, writable_folder

Progress = Callable[[int, int | None], None]
"""Called with the number of bytes received and the expected number, if known."""

ATTEMPTS = 3
TIMEOUT_SECONDS = 30.0
MAX_BYTES = 1 << 30
"""Longer downloads are refused, also from a server that does not state the length. CIFAR's archives have 170 MB."""
_CHUNK_BYTES = 1 << 18
_GZIP_MAGIC = b"\x1f\x8b"


def download_dataset(
    info: DatasetInfo, *, data_dir: str | os.PathLike[str] | None = None, progress: Progress | None = None
) -> Path:
    """Return the folder of a dataset; download the official archive if the dataset is not on this machine.

    Args:
        info: A dataset with an official archive.
        data_dir: Data directory; see ``driftlaw.paths.data_dir``. An official archive found there is used.
        progress: Called as the download advances.

    Raises:
        DataError: The download failed. The message says which file to put where.
    """
    layout, remote = info.layout, info.download
    if layout is None or remote is None:
        raise UsageError(f"'{info.name}' has no download.")
    folder = paths.data_dir(data_dir)
    if info.is_present(folder):
        return info.find(info.splits[0], folder) or info.folder(folder)
    tarball = folder / remote.file_name
    local = tarball.is_file()
    try:
        if not local:
            download_file(remote.address, tarball, sha256=remote.sha256, progress=progress)
        elif sha256_of(tarball) != remote.sha256:
            raise DataError(f"{tarball} is not the official file; expected sha256 {remote.sha256}. Delete it.")
        with replace_folder(info.folder(folder)) as new:
            extract_files(tarball, new, set(layout.all_files))
    except DataError as error:
        raise DataError(
            f"{info.name} could not be downloaded. {error}\n"
            f"Put {remote.file_name} (from {remote.url}), or the folder it unpacks to, into {folder}. Or set "
            f"{remote.url_variable} to the address of a mirror. Then run `driftlaw data get {info.name}` again."
            + (f" Or, in a checkout of driftlaw, run `{info.tool}`." if info.tool else "")
        ) from error
    if not local:
        tarball.unlink()
    return info.folder(folder)


def verify_dataset(info: DatasetInfo, data_dir: str | os.PathLike[str] | None = None) -> list[str]:
    """Return one line per split that is missing, damaged, or differs from the published content."""
    folder, layout = paths.data_dir(data_dir), info.layout
    if layout is None:
        raise UsageError(f"'{info.name}' has no published content to compare with.")
    problems = []
    for split in info.splits:
        batches = find_batches(layout, folder, split)
        try:
            if batches is None:
                raise DataError(f"Not found in {folder}. Run `driftlaw data get {info.name}`.")
            images, labels = read_batches(layout, batches, split)
            difference = info.published[split].difference(batches, len(images), content_sha256(images, labels))
            if difference:
                raise DataError(f"{difference}.")
        except DataError as error:
            problems.append(f"{info.name} {split}: {error}")
    return problems


def download_file(url: str, target: Path, *, sha256: str, progress: Progress | None = None) -> None:
    """Download ``url`` to ``target``; an interrupted download is resumed.

    Args:
        url: http or https address of a gzip file.
        target: Path of the file. Until it is complete and verified it is called ``<target>.part``.
        sha256: Expected sha256.
        progress: Called as the download advances.

    Raises:
        DataError: The server cannot be reached or sends something else. After an interruption the part is kept, and the
            same call resumes. After a wrong checksum nothing is kept.
    """
    if urlsplit(url).scheme not in {"http", "https"}:
        raise UsageError(f"'{url}' is not an http or https address.")
    part = target.with_name(target.name + ".part")
    with disk_full_error(writable_folder(target.parent)):
        resumed = part.exists()
        _transfer_with_retries(url, part, progress)
        if resumed and sha256_of(part) != sha256:
            # The part was of another file, or the server's file has changed: start again from the first byte.
            part.unlink()
            _transfer_with_retries(url, part, progress)
        if (found := sha256_of(part)) == sha256:
            part.replace(target)
            return
        with open(part, "rb") as file:
            start = file.read(512).lower()
        part.unlink()
    if start.startswith(_GZIP_MAGIC):
        raise DataError(f"The file from {url} has sha256 {found}; expected {sha256}. It was deleted.")
    kind = "an HTML page" if b"<html" in start or b"<!doctype" in start else "another kind of file"
    raise DataError(f"{url} returned {kind} instead of the archive.")


def extract_files(tarball: Path, folder: Path, names: set[str]) -> None:
    """Extract the regular files called ``names`` from a tarball into ``folder``, without their directories.

    Raises:
        DataError: The tarball is damaged or lacks one of the files.
    """
    missing = set(names)
    try:
        with tarfile.open(tarball, "r:*") as archive:
            for member in archive:
                name = Path(member.name).name
                content = archive.extractfile(member) if member.isfile() and name in missing else None
                if content is not None:
                    with content, open(folder / name, "wb") as out:
                        shutil.copyfileobj(content, out)
                    missing.discard(name)
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise DataError(f"{tarball.name} is damaged: {error}.") from error
    if missing:
        raise DataError(f"{tarball.name} does not contain {', '.join(sorted(missing))}.")


@contextlib.contextmanager
def replace_folder(target: Path) -> Iterator[Path]:
    """Context manager that yields a temporary folder, which replaces ``target`` if the block succeeds."""
    with disk_full_error(writable_folder(target.parent)):
        temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
        try:
            (temporary / "new").mkdir()
            yield temporary / "new"
            if target.exists():
                os.rename(target, temporary / "old")
            os.rename(temporary / "new", target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


class _TransferInterrupted(Exception):
    """A download ended early; the received bytes are kept for the next attempt."""


def _transfer_with_retries(url: str, part: Path, progress: Progress | None) -> None:
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return _transfer(url, part, progress)
        except _TransferInterrupted as error:
            if attempt == ATTEMPTS:
                size = part.stat().st_size if part.exists() else 0
                raise DataError(
                    f"The download from {url} was interrupted {ATTEMPTS} times ({error}). {size:,} bytes were kept. "
                    "Run the same command again to resume."
                ) from error
    return None


def _transfer(url: str, part: Path, progress: Progress | None) -> None:
    received = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "driftlaw", **({"Range": f"bytes={received}-"} if received else {})}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT_SECONDS) as response:
            resumed = response.status == http.HTTPStatus.PARTIAL_CONTENT
            received = received if resumed else 0
            length = response.headers.get("Content-Length")
            total = received + int(length) if length and length.isdigit() else None
            with open(part, "ab" if resumed else "wb") as out:
                while chunk := _read_chunk(response):
                    if max(received + len(chunk), total or 0) > MAX_BYTES:
                        part.unlink()
                        raise DataError(f"{url} returned more than {MAX_BYTES:,} bytes. Nothing was kept.")
                    out.write(chunk)
                    received += len(chunk)
                    if progress:
                        progress(received, total)
            if total is not None and received < total:
                raise _TransferInterrupted(f"{received:,} of {total:,} bytes received")
    except urllib.error.HTTPError as error:
        with contextlib.closing(error):
            # The requested range starts at or after the end: the part may be complete, its checksum decides.
            if not (received and error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE):
                raise DataError(f"{url} returned {error.code} {error.reason}.") from error
    except urllib.error.URLError as error:
        raise DataError(f"{url} cannot be reached: {error.reason}.") from error
    except (TimeoutError, ConnectionError, http.client.HTTPException) as error:
        raise _TransferInterrupted(str(error) or type(error).__name__) from error


def _read_chunk(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read(_CHUNK_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise _TransferInterrupted(str(error) or type(error).__name__) from error
