"""Contact sheet of all corruptions."""

import numpy as np
from PIL import Image

from driftlaw.corruptions.contact_sheet import contact_sheet


def test_a_sheet_shows_every_corruption_and_does_not_change_the_image():
    pixels = np.random.default_rng(0).integers(0, 256, (20, 28, 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    sheet = np.asarray(contact_sheet(image))
    assert sheet.shape[0] > 10 * 128
    assert sheet.shape[1] > 12 * 128
    assert np.array_equal(np.asarray(image), pixels)
    # Of 12 × 10 cells six stay empty, the others are not background.
    assert (sheet != sheet[0, 0]).any(2).mean() > 0.4
