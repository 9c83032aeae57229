"""A file from a public address: resumed where it broke off, checked against its sha256, unpacked with care."""

from __future__ import annotations

import contextlib
import http.client
import shutil
import tarfile
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

from driftlaw.errors import DataError, UsageError
from driftlaw.files import disk_full_error, sha256_of, writable_folder

Progress = Callable[[int, int | None], None]
"""Called with the bytes that are there and the bytes expected, if that is known."""

ATTEMPTS = 3
SECONDS = 30.0
_PIECE = 1 << 18
_GZIP = b"\x1f\x8b"


class _Broken(Exception):
    """A transfer ended early; what arrived is kept and the next attempt goes on from there."""


def download_file(url: str, target: Path, *, sha256: str, progress: Progress | None = None) -> None:
    """Fetch ``url`` into ``target``; bytes of an earlier, broken transfer are not asked for again.

    Args:
        url: an http or https address of a gzip file.
        target: where the file goes. Until it is whole and checked it is called ``<target>.part``.
        sha256: what its bytes must hash to.
        progress: told how far it has come.

    Raises:
        DataError: the address does not answer, sends something else, or the checksum is wrong. After a broken transfer
            the part stays, so that the same call goes on; after a wrong checksum nothing stays.
    """
    if urlsplit(url).scheme not in {"http", "https"}:
        raise UsageError(f"the address «{url}» is not an http or https one")
    part = target.with_name(target.name + ".part")
    with disk_full_error(writable_folder(target.parent)):
        resumed = part.exists()
        _transfer_with_retries(url, part, progress)
        if resumed and sha256_of(part) != sha256:
            # The part was of another file, or the address serves another one now: once more from the first byte.
            part.unlink()
            _transfer_with_retries(url, part, progress)
        _check(url, part, sha256)
        part.replace(target)


def extract_files(tarball: Path, folder: Path, wanted: set[str]) -> None:
    """Write the regular files of a tarball whose last name is among ``wanted`` flat into ``folder``, and no other.

    Raises:
        DataError: the tarball is damaged or lacks one of them.
    """
    missing = set(wanted)
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
        raise DataError(f"{tarball.name} is damaged: {error}") from error
    if missing:
        raise DataError(f"{tarball.name} lacks {', '.join(sorted(missing))}")


def _transfer_with_retries(url: str, part: Path, progress: Progress | None) -> None:
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return _transfer(url, part, progress)
        except _Broken as error:
            if attempt == ATTEMPTS:
                kept = part.stat().st_size if part.exists() else 0
                raise DataError(
                    f"the transfer from {url} broke off {ATTEMPTS} times ({error}); "
                    f"{kept:,} bytes are kept and the same command goes on from there"
                ) from error
    return None


def _transfer(url: str, part: Path, progress: Progress | None) -> None:
    have = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "driftlaw", **({"Range": f"bytes={have}-"} if have else {})}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=SECONDS) as answer:
            resumed = answer.status == http.HTTPStatus.PARTIAL_CONTENT
            with open(part, "ab" if resumed else "wb") as out:
                _receive(answer, out, have if resumed else 0, progress)
    except urllib.error.HTTPError as error:
        with contextlib.closing(error):
            # Asked for bytes past the end: the part is whole already, or too long; its checksum will tell.
            if not (have and error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE):
                raise DataError(f"{url} answers {error.code} {error.reason}") from error
    except urllib.error.URLError as error:
        raise DataError(f"{url} cannot be reached: {error.reason}") from error
    except (TimeoutError, ConnectionError, http.client.HTTPException) as error:
        raise _Broken(str(error) or type(error).__name__) from error


def _receive(answer: http.client.HTTPResponse, out: BinaryIO, have: int, progress: Progress | None) -> None:
    length = answer.headers.get("Content-Length")
    total = have + int(length) if length and length.isdigit() else None
    while piece := _read(answer):
        out.write(piece)
        have += len(piece)
        if progress:
            progress(have, total)
    if total is not None and have < total:
        raise _Broken(f"{have:,} of {total:,} bytes arrived")


def _read(answer: http.client.HTTPResponse) -> bytes:
    try:
        return answer.read(_PIECE)
    except (OSError, http.client.HTTPException) as error:
        raise _Broken(str(error) or type(error).__name__) from error


def _check(url: str, part: Path, sha256: str) -> None:
    found = sha256_of(part)
    if found == sha256:
        return
    with open(part, "rb") as file:
        start = file.read(512)
    part.unlink()
    if not start.startswith(_GZIP):
        kind = "an HTML page" if b"<html" in start.lower() or b"<!doctype" in start.lower() else "something else"
        raise DataError(f"{url} sent {kind} instead of the archive")
    raise DataError(f"the file from {url} has sha256 {found}; expected {sha256}. It was deleted")
