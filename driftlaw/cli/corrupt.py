"""``driftlaw corrupt``: corrupt image files, or draw a contact sheet of all corruptions."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from driftlaw.cli.console import echo
from driftlaw.cli.options import AsJson
from driftlaw.corruptions.registry import SEVERITIES, Encoding, find_corruptions, list_corruptions
from driftlaw.errors import DataError, UsageError, combined_error

if TYPE_CHECKING:
    from PIL import Image

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
_MAX_NAMED = 10  # files that an error names


def corrupt(
    source: Annotated[Path, typer.Argument(metavar="IN", help="Image file, or folder of images with its sub-folders.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Output folder; for a contact sheet also a .png file.")],
    name: Annotated[
        str | None, typer.Option(help="Corruption, one of `driftlaw list corruptions`; fog+snow applies two.")
    ] = None,
    severity: Annotated[int, typer.Option(help="Severity, 1 to 5.")] = 3,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    no_encoding: Annotated[bool, typer.Option("--no-encoding", help="Do not encode large images as JPEG.")] = False,
    every: Annotated[
        bool, typer.Option("--all", help="All 19 corruptions at all 5 severities, written to OUT/NAME/SEVERITY/….")
    ] = False,
    sheet: Annotated[
        bool, typer.Option("--contact-sheet", help="Draw all 19 × 5 corruptions of one image on one sheet.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Corrupt an image or a folder of images (png, jpg, webp, bmp) of any size.

    Images with a side over 64 pixels use ImageNet-C's severities, smaller ones CIFAR-C's. The published ImageNet-C
    files are JPEG of quality 85, so large images are encoded and decoded once, unless you pass --no-encoding. Results
    are PNG files, which are lossless. The random numbers of an image depend on its position in the sorted list of all
    images.

    Example: driftlaw corrupt photos/ foggy/ --name fog --severity 3

    Example: driftlaw corrupt cat.jpg cat-sheet.png --contact-sheet
    """
    if [name is not None, every, sheet].count(True) != 1:
        raise UsageError("Choose exactly one of --name, --all and --contact-sheet.")
    if severity not in SEVERITIES:
        raise UsageError(f"--severity is {severity}, expected 1 to 5.")
    selected = [(n, s) for n in list_corruptions("all") for s in SEVERITIES]
    if name is not None:
        find_corruptions(name)
        selected = [(name, severity)]
    paths = _find_images(source, out)
    encoding: Encoding = "none" if no_encoding else "auto"
    if sheet:
        written = [_write_contact_sheet(paths, out, seed, encoding)]
    else:
        written = _write_corrupted(paths, _targets(source, paths), out, selected, seed, encoding, in_folders=every)
    if as_json:
        settings = {"pictures": len(paths), "seed": seed, "encoding": encoding}
        print(json.dumps(settings | {"written": [str(path) for path in written]}))
    else:
        echo(f"{len(written)} written: {out}")


def _find_images(source: Path, out: Path) -> list[Path]:
    """Return the readable images to corrupt, sorted, without the results of earlier calls below OUT."""
    if not source.exists():
        raise UsageError(f"{source} does not exist. Expected an image or a folder of images.")
    if source.resolve() == out.resolve() and source.is_dir():
        raise UsageError(f"IN and OUT are the same folder, {source}. Choose another OUT to keep the originals.")
    paths = [source]
    if source.is_dir():
        files = (path for path in source.rglob("*") if path.is_file() and path.suffix.lower() in SUFFIXES)
        paths = sorted(path for path in files if not path.resolve().is_relative_to(out.resolve()))
    if not paths:
        raise UsageError(f"There are no images in {source}. Expected files that end in {', '.join(SUFFIXES)}.")
    problems = []
    for path in paths:
        try:
            _read(path)
        except DataError as error:
            problems.append(str(error))
    if problems:
        more = [f"and {len(problems) - _MAX_NAMED} more"] if len(problems) > _MAX_NAMED else []
        raise combined_error("Some images cannot be read. Repair or move them:", problems[:_MAX_NAMED] + more)
    return paths


def _read(path: Path) -> Image.Image:
    from PIL import ImageOps

    from driftlaw.datasets.image_files import open_image

    with open_image(path) as image:
        return ImageOps.exif_transpose(image).convert("RGB")


def _targets(source: Path, paths: list[Path]) -> list[Path]:
    """Return the output file of each image, relative to OUT."""
    root = source if source.is_dir() else source.parent
    targets = [path.relative_to(root).with_suffix(".png") for path in paths]
    duplicates = [str(target) for target, count in Counter(targets).items() if count > 1]
    if duplicates:
        raise combined_error("Several images would be written to one file. Rename them:", duplicates[:_MAX_NAMED])
    return targets


def _write_corrupted(
    paths: list[Path],
    targets: list[Path],
    out: Path,
    selected: list[tuple[str, int]],
    seed: int,
    encoding: Encoding,
    in_folders: bool,
) -> list[Path]:
    import numpy as np
    import torch
    from PIL import Image

    from driftlaw.cli.console import progress_bar
    from driftlaw.corruptions import corrupt as corrupt_images
    from driftlaw.files import atomic_path

    written = []
    with progress_bar() as bar:
        task = bar.add_task("corrupt", total=len(paths) * len(selected))
        for index, (path, target) in enumerate(zip(paths, targets, strict=True)):
            pixels = torch.from_numpy(np.array(_read(path))).permute(2, 0, 1)[None]
            for name, severity in selected:
                corrupted = corrupt_images(pixels, name, severity, seed=seed, indices=[index], encoding=encoding)[0]
                written.append((out / name / str(severity) if in_folders else out) / target)
                with atomic_path(written[-1]) as file:
                    Image.fromarray(corrupted.permute(1, 2, 0).contiguous().numpy()).save(file, format="PNG")
                bar.update(task, advance=1)
    return written


def _write_contact_sheet(paths: list[Path], out: Path, seed: int, encoding: Encoding) -> Path:
    from driftlaw.corruptions.contact_sheet import contact_sheet
    from driftlaw.files import atomic_path

    if len(paths) > 1:
        raise UsageError(f"A contact sheet shows one image, but IN contains {len(paths)}. Choose one of them as IN.")
    target = out if out.suffix.lower() == ".png" else out / f"{paths[0].stem}-contact-sheet.png"
    with atomic_path(target) as path:
        contact_sheet(_read(paths[0]), seed, encoding).save(path, format="PNG")
    return target
