"""Makes archives of corrupted images with driftlaw's own corruptions, in the official layouts.

    python -m tools.make_archive cifar10-c
    python -m tools.make_archive cifar10-c --dataset cifar10-embedded --corruptions fog,frost --out fog-and-frost
    python -m tools.make_archive imagenet-c --corruptions fog

CIFAR-C archives have one ``<corruption>.npy`` per corruption with the images at severities 1 to 5, and ``labels.npy``.
ImageNet-C archives have one JPEG file per image in ``<corruption>/<severity>/<class>/``, saved with quality 85.
Files are written atomically. After an interruption, run the same command again: finished files are skipped.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from driftlaw import __version__
from driftlaw.corruptions import corrupt, is_large, list_corruptions
from driftlaw.corruptions.registry import Encoding, resolve_encoding
from driftlaw.datasets import ARCHIVES, ImageDataset, load_dataset
from driftlaw.datasets.archives import MANIFEST, archive_folder, read_manifest
from driftlaw.datasets.protocol import SEVERITIES, Pixels
from driftlaw.errors import DataError, DriftlawError, UsageError, unknown_name
from driftlaw.files import atomic_path, delete_leftovers, sha256_of

Progress = Callable[[str, int, int], None]
"""Called with a corruption, the number of its images that are done, and their total."""

PIXELS_PER_CHUNK = 1 << 21
JPEG_QUALITY = 85  # as in the published ImageNet-C


class ArchiveWriter:
    """Writes an archive in the CIFAR-10-C layout, one file per corruption; finished files are skipped.

    Args:
        folder: Output folder.
        count_per_severity: Number of images per severity.
        labels: int (n,), labels of one severity.
        num_classes: Number of classes; by default the largest label + 1.
        recipe: What the images are made from. A folder with an archive of another recipe is rejected.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        count_per_severity: int,
        labels: npt.ArrayLike,
        *,
        num_classes: int | None = None,
        recipe: Mapping[str, Any] | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.count = count_per_severity
        block = np.asarray(labels, dtype=np.int64)
        if block.shape != (count_per_severity,):
            raise UsageError(f"Labels have shape {block.shape}; expected ({count_per_severity},), one label per image.")
        self._header = {
            "count_per_severity": count_per_severity,
            "num_classes": num_classes or int(block.max()) + 1,
            "recipe": json.loads(json.dumps(dict(recipe or {"by": "driftlaw"}))),
        }
        self._files = self._read_existing()
        if not self.is_done("labels"):
            self._write_array("labels", block.dtype, (SEVERITIES * self.count,), [block] * SEVERITIES)

    def is_done(self, corruption: str) -> bool:
        """Return True if the file exists with the sha256 that was recorded when it was finished."""
        entry, path = self._files.get(f"{corruption}.npy"), self.folder / f"{corruption}.npy"
        return entry is not None and path.is_file() and sha256_of(path) == entry.get("sha256")

    def write(self, corruption: str, images: Iterable[Pixels]) -> bool:
        """Write the file of one corruption unless it is finished; return True if it was written.

        Args:
            corruption: Name of the corruption.
            images: Chunks of uint8 (k, h, w, 3): all images at severity 1, then all at severity 2, and so on.
        """
        if self.is_done(corruption):
            return False
        chunks = iter(images)
        first = next(chunks, None)
        if first is None:
            raise UsageError(f"No images were passed for '{corruption}'.")
        shape = (SEVERITIES * self.count, *first.shape[1:])
        self._write_array(corruption, np.dtype(np.uint8), shape, itertools.chain([first], chunks))
        return True

    def _write_array(
        self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...], chunks: Iterable[npt.NDArray[Any]]
    ) -> None:
        path = self.folder / f"{name}.npy"
        self.folder.mkdir(parents=True, exist_ok=True)
        delete_leftovers(path)
        delete_leftovers(self.folder / MANIFEST)
        with atomic_path(path) as temporary:
            with open(temporary, "wb") as file:
                write_npy(file, dtype, shape, chunks, path.name)
            entry = {"sha256": sha256_of(temporary), "bytes": temporary.stat().st_size}
        self._files[path.name] = entry
        manifest = {"format": 1, **self._header, "files": dict(sorted(self._files.items()))}
        with atomic_path(self.folder / MANIFEST) as temporary:
            temporary.write_text(json.dumps(manifest, indent=1) + "\n")

    def _read_existing(self) -> dict[str, Any]:
        manifest = read_manifest(self.folder).model_dump()
        if not manifest["files"]:
            if any(self.folder.glob("*.npy")):
                raise DataError(
                    f"{self.folder} contains .npy files but no {MANIFEST}, so driftlaw did not make them. "
                    "Choose another folder with --out."
                )
            return {}
        different = [key for key, value in self._header.items() if manifest.get(key) != value]
        if different:
            details = "; ".join(f"{key} is {manifest.get(key)}, not {self._header[key]}" for key in different)
            raise DataError(
                f"{self.folder} has an archive with another recipe ({details}). Choose another folder, or delete it."
            )
        return dict(manifest["files"])


def write_npy(
    file: BinaryIO, dtype: np.dtype[Any], shape: tuple[int, ...], chunks: Iterable[npt.NDArray[Any]], name: str
) -> None:
    """Write an ``.npy`` file chunk by chunk, so that memory use does not grow with the archive."""
    descr = np.lib.format.dtype_to_descr(dtype)
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
    written = 0
    for chunk in chunks:
        if chunk.dtype != dtype or chunk.shape[1:] != shape[1:]:
            raise UsageError(f"{name}: a chunk is {chunk.dtype} {chunk.shape}; expected {dtype} (k, {shape[1:]}).")
        file.write(np.ascontiguousarray(chunk).data)
        written += len(chunk)
    if written != shape[0]:
        raise UsageError(f"{name}: found {written} images; expected {shape[0]}.")


def make_archive(
    dataset: ImageDataset,
    folder: str | os.PathLike[str],
    *,
    names: Sequence[str] | None = None,
    seed: int = 0,
    device: str | torch.device = "cpu",
    layout: str = "cifar-c",
    progress: Progress | None = None,
) -> list[str]:
    """Write corrupted images of a dataset; corruptions that are already finished are skipped.

    Args:
        dataset: The clean images.
        folder: Output folder. A folder that contains an archive with another recipe is rejected.
        names: Corruptions; by default the 15 of the benchmark.
        seed: Seed of the corruptions. Image i at a severity does not depend on what else is made.
        device: Where the corruptions are computed.
        layout: ``cifar-c`` or ``imagenet-c``.
        progress: Called after every chunk.

    Returns:
        The corruptions that this call made.
    """
    names = list(list_corruptions("benchmark") if names is None else names)
    for name in names:
        if name not in (valid := list_corruptions("all")):
            raise unknown_name("corruption", name, valid)
    report = progress or (lambda name, done, total: None)
    device = torch.device(device)
    if layout == "imagenet-c":
        return [name for name in names if _write_folders(dataset, Path(folder), name, seed, device, report)]
    recipe = {"dataset": dataset.metadata(), "seed": seed, "driftlaw": __version__}
    if is_large(*dataset.image_shape):
        recipe["encoding"] = resolve_encoding("auto", *dataset.image_shape)
    writer = ArchiveWriter(folder, len(dataset), dataset.labels, num_classes=dataset.num_classes, recipe=recipe)
    return [
        name
        for name in names
        if writer.write(name, (images for _, _, images in _chunks(dataset, name, seed, device, report)))
    ]


def _chunks(
    dataset: ImageDataset, name: str, seed: int, device: torch.device, progress: Progress, encoding: Encoding = "auto"
) -> Iterator[tuple[int, npt.NDArray[np.int64], Pixels]]:
    """Yield severity, dataset indices and corrupted images (k, h, w, 3)."""
    height, width = dataset.image_shape
    step = max(1, PIXELS_PER_CHUNK // (height * width))
    done, total = 0, SEVERITIES * len(dataset)
    for severity in range(1, SEVERITIES + 1):
        for start in range(0, len(dataset), step):
            indices = np.arange(start, min(start + step, len(dataset)))
            images = torch.from_numpy(dataset.images(indices)).to(device).permute(0, 3, 1, 2)
            order = torch.from_numpy(indices)
            corrupted = corrupt(images, name, severity, seed=seed, indices=order, encoding=encoding)
            yield severity, indices, corrupted.permute(0, 2, 3, 1).contiguous().cpu().numpy()
            done += len(indices)
            progress(name, done, total)


def _write_folders(
    dataset: ImageDataset, folder: Path, name: str, seed: int, device: torch.device, progress: Progress
) -> bool:
    """Write one corruption in the ImageNet-C layout; return False if it was finished before."""
    described = {"dataset": dataset.metadata(), "seed": seed, "driftlaw": __version__}
    if name == "frost" and is_large(*dataset.image_shape):
        described["frost_photographs"] = "full size"  # earlier versions enlarged those for small images
    recipe = json.dumps(described, sort_keys=True)
    marker = folder / name / ".driftlaw.json"
    if marker.is_file():
        if marker.read_text() != recipe:
            raise DataError(f"{marker.parent} was made with another recipe. Choose another folder or delete it.")
        return False
    if (folder / name).exists() and not (folder / name / ".driftlaw.part").is_file():
        raise DataError(f"{folder / name} exists and driftlaw did not make it. Choose another folder with --out.")
    (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / name / ".driftlaw.part").touch()
    for severity, indices, images in _chunks(dataset, name, seed, device, progress, encoding="none"):
        for index, pixels in zip(indices.tolist(), images, strict=True):
            path = folder / name / str(severity) / dataset.class_names[dataset.labels[index]] / f"{index:08d}.JPEG"
            with atomic_path(path) as temporary:
                Image.fromarray(pixels).save(temporary, "JPEG", quality=JPEG_QUALITY)
    with atomic_path(marker) as temporary:
        temporary.write_text(recipe)
    (folder / name / ".driftlaw.part").unlink()
    return True


def main(arguments: Sequence[str] | None = None) -> None:
    """Make an archive and print what was made."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", choices=sorted(ARCHIVES))
    parser.add_argument("--dataset", help="clean images (default: the archive's dataset); folder:PATH for your own")
    parser.add_argument("--out", type=Path, help="output folder (default: the archive's folder in the data directory)")
    parser.add_argument("--corruptions", default="benchmark", help="benchmark, held_out, all, or comma-separated names")
    parser.add_argument("--seed", type=int, default=0, help="seed of the corruptions")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, ...")
    parser.add_argument("--data-dir", type=Path, help="data directory (default: $DRIFTLAW_DATA, then the user cache)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args(arguments)
    from driftlaw.hardware import pick_device

    groups = ("benchmark", "held_out", "all")
    listed = [name.strip() for name in options.corruptions.split(",") if name.strip()]
    names = list_corruptions(options.corruptions) if options.corruptions in groups else listed
    dataset = options.dataset or ARCHIVES[options.archive].dataset
    if options.out is None and dataset != ARCHIVES[options.archive].dataset:
        fitting = [name for name, info in ARCHIVES.items() if info.dataset == dataset]
        instead = f"Did you mean the archive {fitting[0]}? " if fitting else ""
        raise UsageError(f"{options.archive} is made from {ARCHIVES[options.archive].dataset}. {instead}Pass --out.")
    folder = options.out or archive_folder(options.archive, options.data_dir)
    made = make_archive(
        load_dataset(dataset, data_dir=options.data_dir),
        folder,
        names=names,
        seed=options.seed,
        device=pick_device(options.device),
        layout="imagenet-c" if options.archive == "imagenet-c" else "cifar-c",
        progress=_print_progress if sys.stderr.isatty() else None,
    )
    skipped = [name for name in names if name not in made]
    if options.json:
        print(json.dumps({"folder": str(folder), "made": made, "skipped": skipped}, indent=2))
    else:
        print(f"{len(made)} corruptions made, {len(skipped)} already finished: {folder}")


def _print_progress(name: str, done: int, total: int) -> None:
    print(f"\r{name}: {done:,} of {total:,} images", end="\n" if done == total else "", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        main()
    except DriftlawError as error:
        sys.exit(f"error: {error}")
