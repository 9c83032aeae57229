"""LAW for logits (n, classes, h, w), one pixel at a time; the rest of the step is the reference for classification."""

from __future__ import annotations

import math

from torch import Tensor

from tests.reference.law import ReferenceLaw


class ReferenceDenseLaw(ReferenceLaw):
    """Every pixel counts as an image.

    Attributes:
        params: parameters of an augmentation that moves pixels, set before a step; None if it moves none.
        size: height and width of the images.
    """

    params = None
    size = (0, 0)

    def rows(self, logits: Tensor) -> list[Tensor]:
        """Return the logits of every pixel."""
        count, _, height, width = logits.shape
        return [logits[n, :, y, x] for n in range(count) for y in range(height) for x in range(width)]

    def pairs(self, logits: Tensor, augmented_logits: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return the logits of every pixel and of the same pixel in the augmented image, if it shows the pixel."""
        if self.params is None:
            return list(zip(self.rows(logits), self.rows(augmented_logits), strict=True))
        pairs = []
        count, _, height, width = logits.shape
        for y in range(height):
            for x in range(width):
                new_x, new_y = self._moved(x, y, height, width)
                if -0.5 <= new_x <= width - 0.5 and -0.5 <= new_y <= height - 0.5:
                    pairs += [(logits[n, :, y, x], _bilinear(augmented_logits[n], new_x, new_y)) for n in range(count)]
        return pairs

    def _moved(self, x: int, y: int, height: int, width: int) -> tuple[float, float]:
        """Return where the augmentation moves a pixel of the logits, in pixels of the logits."""
        image_height, image_width = self.size
        right = (x + 0.5) * image_width / width - image_width / 2  # from the center of the image, in its pixels
        down = (y + 0.5) * image_height / height - image_height / 2
        angle, scale = math.radians(self.params.degrees), self.params.scale
        new_right = scale * (math.cos(angle) * right - math.sin(angle) * down)
        new_down = scale * (math.sin(angle) * right + math.cos(angle) * down)
        new_right += round(self.params.shift[0] * 2 * image_width)
        new_down += round(self.params.shift[1] * 2 * image_height)
        if self.params.flip:
            new_right = -new_right
        new_x = (new_right + image_width / 2) * width / image_width - 0.5
        new_y = (new_down + image_height / 2) * height / image_height - 0.5
        return new_x, new_y


def _bilinear(logits: Tensor, x: float, y: float) -> Tensor:
    """Return logits (classes, h, w) between the centers of pixels; outside of these, the nearest value."""
    height, width = logits.shape[1:]
    x, y = min(max(x, 0.0), width - 1.0), min(max(y, 0.0), height - 1.0)
    left, top = int(x), int(y)
    right, bottom = min(left + 1, width - 1), min(top + 1, height - 1)
    upper = (1 - (x - left)) * logits[:, top, left] + (x - left) * logits[:, top, right]
    lower = (1 - (x - left)) * logits[:, bottom, left] + (x - left) * logits[:, bottom, right]
    return (1 - (y - top)) * upper + (y - top) * lower
