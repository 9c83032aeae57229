"""Random crops and flips, one pixel at a time."""

import torch


def crop_and_flip(images, tops, lefts, mirrored, padding):
    """Return images (n, c, h, w), each zero-padded, cropped at (top, left) and flipped if ``mirrored``."""
    count, channels, height, width = images.shape
    out = torch.zeros_like(images)
    for image in range(count):
        for channel in range(channels):
            for row in range(height):
                for column in range(width):
                    from_row = int(tops[image]) + row - padding
                    from_column = int(lefts[image]) + column - padding
                    if 0 <= from_row < height and 0 <= from_column < width:
                        target = width - 1 - column if mirrored[image] else column
                        out[image, channel, row, target] = images[image, channel, from_row, from_column]
    return out
