"""tools/compare_corruptions.py."""

import numpy as np
import torch
from PIL import Image

from driftlaw.corruptions import corrupt
from tools.compare_corruptions import compare


def test_differences_and_statistics_are_reported(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (80, 80, 3), dtype=np.uint8)
    clean = tmp_path / "val" / "a" / "1.png"
    clean.parent.mkdir(parents=True)
    Image.fromarray(pixels).save(clean)
    for name, shift in (("contrast", 0), ("brightness", 3)):
        images = torch.from_numpy(pixels).permute(2, 0, 1)[None]
        own = corrupt(images, name, 5)[0].permute(1, 2, 0).numpy()
        path = tmp_path / "c" / name / "5" / "a" / "1.png"
        path.parent.mkdir(parents=True)
        Image.fromarray(np.where(own > 128, own - shift, own + shift).astype(np.uint8)).save(path)
    found = compare(tmp_path / "val", tmp_path / "c")
    assert (found["contrast"]["largest_difference"], found["contrast"]["mean_difference"]) == (0, 0.0)
    assert found["contrast"]["driftlaw"] == found["contrast"]["imagecorruptions"]
    assert (found["brightness"]["largest_difference"], found["brightness"]["mean_difference"]) == (3, 3.0)
    assert found["brightness"]["driftlaw"]["difference_from_clean"] > 10
    assert found["contrast"]["driftlaw"]["laplacian"] < found["brightness"]["driftlaw"]["laplacian"]
