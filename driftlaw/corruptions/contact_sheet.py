"""Contact sheet: one image under every corruption at every severity."""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont

from driftlaw.corruptions.pipeline import corrupt
from driftlaw.corruptions.registry import CORRUPTIONS, SEVERITIES, Corruption

_LONGEST_SIDE = 224
_CELL = 128
_GAP = 6
_LABEL = 176
_HEAD = 44
_MARGIN = 28
_ROWS = 10
_PAPER, _INK, _FAINT = (250, 250, 248), (28, 30, 34), (128, 132, 140)


def contact_sheet(image: Image.Image, seed: int = 0) -> Image.Image:
    """Return a sheet with one row per corruption: the clean image, then severities 1 to 5, the held-out four last.

    An image with a side over 224 pixels is first reduced to 224, the size that ImageNet-C's parameters were made for.
    """
    clean = image.convert("RGB")
    clean.thumbnail((_LONGEST_SIDE, _LONGEST_SIDE), Image.Resampling.LANCZOS)
    panels = [CORRUPTIONS[:_ROWS], CORRUPTIONS[_ROWS:]]
    width, height = _LABEL + 6 * (_CELL + _GAP), _HEAD + _ROWS * (_CELL + _GAP)
    sheet = Image.new("RGB", (2 * width + 3 * _MARGIN, height + 2 * _MARGIN), _PAPER)
    for number, corruptions in enumerate(panels):
        _draw_panel(sheet, (_MARGIN + number * (width + _MARGIN), _MARGIN), clean, corruptions, seed)
    return sheet


def _draw_panel(
    sheet: Image.Image, corner: tuple[int, int], clean: Image.Image, corruptions: tuple[Corruption, ...], seed: int
) -> None:
    pen = ImageDraw.Draw(sheet)
    left, top = corner
    for column, title in enumerate(["clean", *(str(severity) for severity in SEVERITIES)]):
        middle = left + _LABEL + column * (_CELL + _GAP) + _CELL // 2
        pen.text((middle, top + _HEAD // 2), title, fill=_FAINT, font=ImageFont.load_default(18), anchor="mm")
    for row, corruption in enumerate(corruptions):
        y = top + _HEAD + row * (_CELL + _GAP)
        _draw_label(pen, (left + _LABEL - 2 * _GAP, y + _CELL // 2), corruption)
        for column, cell in enumerate(_cells(clean, corruption, seed)):
            x = left + _LABEL + column * (_CELL + _GAP)
            sheet.paste(cell, (x + (_CELL - cell.width) // 2, y + (_CELL - cell.height) // 2))


def _draw_label(pen: ImageDraw.ImageDraw, position: tuple[int, int], corruption: Corruption) -> None:
    x, y = position
    pen.text((x, y), corruption.title, fill=_INK, font=ImageFont.load_default(17), anchor="rm")
    if corruption.kind == "held_out":
        pen.text((x, y + 21), "held out", fill=_FAINT, font=ImageFont.load_default(14), anchor="rm")


def _cells(clean: Image.Image, corruption: Corruption, seed: int) -> list[Image.Image]:
    image = torch.from_numpy(np.array(clean)).permute(2, 0, 1)[None]
    corrupted = [corrupt(image, corruption.name, severity, seed=seed) for severity in SEVERITIES]
    return [
        _fit_to_cell(clean),
        *(_fit_to_cell(Image.fromarray(each[0].permute(1, 2, 0).numpy())) for each in corrupted),
    ]


def _fit_to_cell(image: Image.Image) -> Image.Image:
    """Return the image in the size of a cell. Small images are enlarged with visible pixels."""
    factor = _CELL / max(image.size)
    size = (max(1, round(image.width * factor)), max(1, round(image.height * factor)))
    return image.resize(size, Image.Resampling.NEAREST if factor > 1 else Image.Resampling.LANCZOS)
