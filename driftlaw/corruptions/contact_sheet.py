"""Contact sheet: one image under every corruption at every severity."""

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont, ImageOps

from driftlaw.corruptions.pipeline import corrupt
from driftlaw.corruptions.registry import CORRUPTIONS, SEVERITIES, Encoding

_LONGEST_SIDE = 224
_CELL, _GAP, _LABEL, _HEAD, _MARGIN = 128, 6, 176, 44, 28  # pixels
_ROWS = 10  # per panel
_PAPER, _INK, _FAINT = (250, 250, 248), (28, 30, 34), (128, 132, 140)


def contact_sheet(image: Image.Image, seed: int = 0, encoding: Encoding = "auto") -> Image.Image:
    """Return a sheet with one row per corruption: the clean image, then severities 1 to 5, the held-out four last.

    An image with a side over 224 pixels is first reduced to 224, the size that ImageNet-C's parameters were made for.
    """
    clean = image.convert("RGB")
    clean.thumbnail((_LONGEST_SIDE, _LONGEST_SIDE), Image.Resampling.LANCZOS)
    # A small image is enlarged without interpolation, so that its pixels stay visible.
    resampling = Image.Resampling.NEAREST if max(clean.size) < _CELL else Image.Resampling.LANCZOS
    pixels = torch.from_numpy(np.array(clean)).permute(2, 0, 1)[None]
    panel_width, height = _LABEL + 6 * (_CELL + _GAP), _HEAD + _ROWS * (_CELL + _GAP)
    sheet = Image.new("RGB", (2 * panel_width + 3 * _MARGIN, height + 2 * _MARGIN), _PAPER)
    pen = ImageDraw.Draw(sheet)
    for panel in (0, 1):
        left = _MARGIN + panel * (panel_width + _MARGIN) + _LABEL
        for column, title in enumerate(["clean", *(str(severity) for severity in SEVERITIES)]):
            middle = left + column * (_CELL + _GAP) + _CELL // 2
            pen.text((middle, _MARGIN + _HEAD // 2), title, _FAINT, ImageFont.load_default(18), anchor="mm")
        for row, corruption in enumerate(CORRUPTIONS[panel * _ROWS : (panel + 1) * _ROWS]):
            y = _MARGIN + _HEAD + row * (_CELL + _GAP)
            x_label, y_label = left - 2 * _GAP, y + _CELL // 2
            pen.text((x_label, y_label), corruption.title, _INK, ImageFont.load_default(17), anchor="rm")
            if corruption.kind == "held_out":
                pen.text((x_label, y_label + 21), "held out", _FAINT, ImageFont.load_default(14), anchor="rm")
            corrupted = [corrupt(pixels, corruption.name, s, seed=seed, encoding=encoding)[0] for s in SEVERITIES]
            images = [clean, *(Image.fromarray(each.permute(1, 2, 0).numpy()) for each in corrupted)]
            for column, each in enumerate(images):
                cell = ImageOps.contain(each, (_CELL, _CELL), resampling)
                x = left + column * (_CELL + _GAP)
                sheet.paste(cell, (x + (_CELL - cell.width) // 2, y + (_CELL - cell.height) // 2))
    return sheet
