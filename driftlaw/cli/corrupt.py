"""``driftlaw corrupt``: corrupt pictures on disk."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from driftlaw.corruptions.registry import SEVERITIES, find_corruption, list_corruptions
from driftlaw.errors import UsageError, collected

if TYPE_CHECKING:
    from PIL import Image

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
_NAMED_IN_AN_ERROR = 10


def corrupt(
    source: Annotated[Path, typer.Argument(metavar="IN", help="A picture, or a folder of them with its sub-folders.")],
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="The folder to write into; for a contact sheet also a .png file.")
    ],
    name: Annotated[str | None, typer.Option(help="The corruption, as `driftlaw list corruptions` names it.")] = None,
    severity: Annotated[int, typer.Option(help="1 to 5.")] = 3,
    seed: Annotated[int, typer.Option(help="Another seed, another noise.")] = 0,
    every: Annotated[
        bool, typer.Option("--all", help="All 19 corruptions at all 5 severities, as OUT/NAME/SEVERITY/….")
    ] = False,
    sheet: Annotated[
        bool, typer.Option("--contact-sheet", help="Draw all 19 × 5 of one picture on one sheet.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
) -> None:
    """Corrupt a picture or a folder of pictures (png, jpg, webp, bmp) of any size.

    Results are PNG files, so that nothing is lost twice. A picture's number, which its noise depends on, is its place
    in the sorted list of all pictures. Pictures with a side over 64 pixels take ImageNet-C's severities, smaller ones
    CIFAR-C's.

    Example: driftlaw corrupt photos/ foggy/ --name fog --severity 3

    Example: driftlaw corrupt cat.jpg cat-sheet.png --contact-sheet
    """
    _check(name, severity, every, sheet)
    pictures = _find(source, out)
    if sheet:
        written = [_draw_sheet(pictures, out, seed)]
    else:
        kinds = [(each, level) for each in list_corruptions("all") for level in SEVERITIES] if every else []
        written = _corrupt_all(source, pictures, out, kinds or [(str(name), severity)], seed, in_folders=every)
    if as_json:
        print(json.dumps({"pictures": len(pictures), "seed": seed, "written": [str(path) for path in written]}))
    else:
        print(f"{len(written)} written: {out}")


def _check(name: str | None, severity: int, every: bool, sheet: bool) -> None:
    problems = []
    if name is None and not (every or sheet):
        problems.append("no corruption is named: give --name, --all or --contact-sheet")
    if name is not None and (every or sheet):
        problems.append("--name goes with neither --all nor --contact-sheet")
    if every and sheet:
        problems.append("--all and --contact-sheet are two different things: give one of them")
    if severity not in SEVERITIES:
        problems.append(f"--severity is {severity}, expected 1 to 5")
    if problems:
        raise collected("pictures cannot be corrupted so:", problems)
    if name is not None:
        find_corruption(name)


def _find(source: Path, out: Path) -> list[Path]:
    """Return the pictures to corrupt, sorted; results of an earlier call that lie below OUT are none of them."""
    if not source.exists():
        raise UsageError(f"there is no picture or folder at {source}")
    if source.is_file():
        pictures = [source]
    elif source.resolve() == out.resolve():
        raise UsageError(f"IN and OUT are the same folder, {source}: name another OUT, so that the originals stay")
    else:
        found = (path for path in source.rglob("*") if path.is_file() and path.suffix.lower() in SUFFIXES)
        pictures = sorted(path for path in found if not path.resolve().is_relative_to(out.resolve()))
    if not pictures:
        raise UsageError(f"no pictures in {source}: expected files that end in {', '.join(SUFFIXES)}")
    _check_readable(pictures)
    return pictures


def _check_readable(pictures: list[Path]) -> None:
    problems = []
    for path in pictures:
        try:
            _read(path)
        except UsageError as error:
            problems.append(str(error))
    if problems:
        more = len(problems) - _NAMED_IN_AN_ERROR
        rest = [f"and {more} more"] if more > 0 else []
        raise collected("pictures that cannot be read; mend or move them:", problems[:_NAMED_IN_AN_ERROR] + rest)


def _read(path: Path) -> Image.Image:
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with Image.open(path) as picture:
            return ImageOps.exif_transpose(picture).convert("RGB")
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UsageError(f"{path}: {error}") from error


def _targets(source: Path, pictures: list[Path]) -> list[Path]:
    """Return where each picture goes, relative to OUT; two that would become one file are refused."""
    root = source if source.is_dir() else source.parent
    targets = [path.relative_to(root).with_suffix(".png") for path in pictures]
    twice = [str(target) for target, times in Counter(targets).items() if times > 1]
    if twice:
        raise collected("several pictures would be written to one file; rename them:", twice[:_NAMED_IN_AN_ERROR])
    return targets


def _corrupt_all(
    source: Path, pictures: list[Path], out: Path, kinds: list[tuple[str, int]], seed: int, in_folders: bool
) -> list[Path]:
    from driftlaw.cli.console import progress_bar

    targets = _targets(source, pictures)
    written = []
    with progress_bar() as bar:
        task = bar.add_task("corrupt", total=len(pictures) * len(kinds))
        for number, (path, target) in enumerate(zip(pictures, targets, strict=True)):
            picture = _read(path)
            for name, severity in kinds:
                folder = out / name / str(severity) if in_folders else out
                written.append(_write_corrupted(picture, folder / target, name, severity, seed, number))
                bar.update(task, advance=1)
    return written


def _write_corrupted(picture: Image.Image, target: Path, name: str, severity: int, seed: int, number: int) -> Path:
    import numpy as np
    import torch
    from PIL import Image

    from driftlaw.corruptions import corrupt as corrupt_images
    from driftlaw.files import atomic_path

    images = torch.from_numpy(np.array(picture)).permute(2, 0, 1)[None]
    changed = corrupt_images(images, name, severity, seed=seed, indices=[number])
    with atomic_path(target) as path:
        Image.fromarray(changed[0].permute(1, 2, 0).contiguous().numpy()).save(path, format="PNG")
    return target


def _draw_sheet(pictures: list[Path], out: Path, seed: int) -> Path:
    from driftlaw.corruptions.contact_sheet import contact_sheet
    from driftlaw.files import atomic_path

    if len(pictures) > 1:
        raise UsageError(f"a contact sheet shows one picture, found {len(pictures)}: name one of them as IN")
    target = out if out.suffix.lower() == ".png" else out / f"{pictures[0].stem}-contact-sheet.png"
    with atomic_path(target) as path:
        contact_sheet(_read(pictures[0]), seed).save(path, format="PNG")
    return target
