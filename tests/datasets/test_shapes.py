"""The generated dataset of moving shapes."""

import numpy as np

from driftlaw.datasets import load_dataset


def test_frames_are_the_same_on_every_machine():
    dataset = load_dataset("shapes")
    assert (len(dataset), dataset.image_shape, dataset.num_classes, len(dataset.sequences)) == (120, (32, 48), 5, 8)
    assert dataset.metadata()["sha256"] == SHA256
    maps = dataset.label_maps(np.arange(120))
    assert all(set(np.unique(maps[part])) == set(range(5)) for part in dataset.sequences.values())
    assert (maps[1:15] != maps[:14]).mean() < 0.2  # shapes move slowly
    assert load_dataset("shapes", split="train").metadata()["sha256"] != SHA256


SHA256 = "7cc566a944375975f6e90def571837dae25aa71d60011f350f55aee5b66f3d42"
