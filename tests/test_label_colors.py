"""Colors of classes, and label maps as RGB images."""

import numpy as np

from driftlaw.label_colors import CLASS_COLORS, label_map_to_rgb


def test_each_class_has_its_color_and_pixels_without_a_class_are_gray():
    labels = np.array([[0, 18, 254], [255, -1, 300]])
    rgb = label_map_to_rgb(labels)
    assert (rgb.shape, rgb.dtype) == ((2, 3, 3), np.uint8)
    assert rgb[0].tolist() == CLASS_COLORS[[0, 18, 254]].tolist()
    assert set(rgb[1].ravel().tolist()) <= {128, 184}


def test_the_first_classes_have_different_colors_and_none_is_gray():
    first = CLASS_COLORS[:24].astype(int)
    distances = np.abs(first[:, None] - first[None]).sum(-1) + 1000 * np.eye(24, dtype=int)
    assert distances.min() > 50
    assert np.ptp(first, axis=1).min() > 40
