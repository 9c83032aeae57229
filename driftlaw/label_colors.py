"""Colors of classes: a fixed table, and label maps as RGB images."""

import numpy as np
import numpy.typing as npt

_HEX = (
    # The colors of Okabe and Ito (2008) without black.
    *("0072b2", "e69f00", "009e73", "cc79a7", "56b4e9", "d55e00", "f0e442"),
    # Each of the others has the largest distance (OKLab) from those before it and from gray. It is the smallest of four
    # distances: for normal vision, and for protanopia, deuteranopia and tritanopia as in Machado et al. (2009).
    *("5a004b", "3c00a5", "96ffd2", "96001e", "a500f0", "5a4b78", "005a4b", "b469f0", "b4d2ff", "c300a5", "965a3c"),
    *("4b0078", "87c378", "ff69d2", "c3ff96", "3ce1a5", "001ed2"),
)

CLASS_COLORS: npt.NDArray[np.uint8] = np.concatenate(
    [0.8**cycle * np.array([list(bytes.fromhex(color)) for color in _HEX]) for cycle in range(11)]
)[:255].astype(np.uint8)
"""RGB color of every class, (255, 3). The first 24 also differ for color-blind readers. Then they repeat, darker."""

_HATCH = np.array([[128] * 3, [184] * 3], np.uint8)


def label_map_to_rgb(labels: npt.NDArray[np.integer]) -> npt.NDArray[np.uint8]:
    """Return a label map (h, w) as an RGB image, uint8 (h, w, 3). Pixels without a class are hatched in gray.

    Args:
        labels: Class of every pixel, from 0 to 254. Other numbers, such as 255 and -1, are pixels without a class.

    >>> label_map_to_rgb(np.array([[0, 255]]))[0].tolist()
    [[0, 114, 178], [128, 128, 128]]
    """
    has_class = (labels >= 0) & (labels < len(CLASS_COLORS))
    y, x = np.indices(labels.shape)
    colors = CLASS_COLORS[np.where(has_class, labels, 0)]
    return np.where(has_class[..., None], colors, _HATCH[(x + y) // 4 % 2])
