"""Random crops and flips, image by image and pixel by pixel."""

import torch


def crop_and_flip(images, tops, lefts, mirrored, padding):
    """Return images (n, c, h, w), each cropped from its black-padded self at (top, left), then maybe mirrored."""
    count, channels, height, width = images.shape
    out = torch.zeros_like(images)
    for number in range(count):
        for channel in range(channels):
            for row in range(height):
                for column in range(width):
                    from_row = int(tops[number]) + row - padding
                    from_column = int(lefts[number]) + column - padding
                    if 0 <= from_row < height and 0 <= from_column < width:
                        place = width - 1 - column if mirrored[number] else column
                        out[number, channel, row, place] = images[number, channel, from_row, from_column]
    return out
