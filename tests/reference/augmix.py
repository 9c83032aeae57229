"""AugMix, one image at a time with Pillow, from the paper's description and its published numbers."""

import numpy as np
import torch
from PIL import Image, ImageOps

SIZE_SHARE = 3


def _affine(image, numbers):
    return image.transform(image.size, Image.Transform.AFFINE, numbers, resample=Image.Resampling.BILINEAR)


def operate(image, name, level, sign):
    """Return a Pillow image with one operation applied at a ``level`` from 0 to 10."""
    if name == "autocontrast":
        return ImageOps.autocontrast(image)
    if name == "equalize":
        return ImageOps.equalize(image)
    if name == "posterize":
        return ImageOps.posterize(image, 4 - int(level * 4 / 10))
    if name == "solarize":
        return ImageOps.solarize(image, 256 - int(level * 256 / 10))
    if name == "rotate":
        return image.rotate(sign * int(level * 30 / 10), resample=Image.Resampling.BILINEAR)
    if name == "shear_x":
        return _affine(image, (1, sign * level * 0.3 / 10, 0, 0, 1, 0))
    if name == "shear_y":
        return _affine(image, (1, 0, 0, sign * level * 0.3 / 10, 1, 0))
    width, height = image.size
    if name == "translate_x":
        return _affine(image, (1, 0, sign * int(level * width / SIZE_SHARE / 10), 0, 1, 0))
    assert name == "translate_y"
    return _affine(image, (1, 0, 0, 0, 1, sign * int(level * height / SIZE_SHARE / 10)))


def operate_on_pixels(pixels, name, level, sign):
    """Apply one operation to a uint8 tensor (c, h, w)."""
    image = Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy())
    return torch.from_numpy(np.array(operate(image, name, level, sign))).permute(2, 0, 1)


def mix(pixels, chains, weights, share):
    """Return one image (c, h, w), float64 in [0, 1]; ``chains`` is a list of lists of (name, level, sign)."""
    mixed = torch.zeros(pixels.shape, dtype=torch.float64)
    for chain, weight in zip(chains, weights, strict=True):
        changed = pixels
        for name, level, sign in chain:
            changed = operate_on_pixels(changed, name, level, sign)
        mixed += weight * changed.double() / 255
    return (1 - share) * pixels.double() / 255 + share * mixed


def jensen_shannon(logits):
    """Return the mean over images of the Jensen-Shannon divergence of the predictions for all views, with loops."""
    total = 0.0
    count = logits[0].shape[0]
    for row in range(count):
        predictions = [torch.softmax(view[row].double(), 0) for view in logits]
        mean = sum(predictions) / len(predictions)
        for prediction in predictions:
            for p, m in zip(prediction, mean, strict=True):
                total += float(p * (torch.log(p) - torch.log(m))) / len(predictions)
    return total / count
