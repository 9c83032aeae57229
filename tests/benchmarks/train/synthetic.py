"""Two-class dataset and recipe for training runs of a second."""

import numpy as np
import torch

from benchmarks.train import Recipe, Training
from driftlaw.datasets import ArrayImages

CPU = torch.device("cpu")


def easy_images(name, count, seed):
    """Return noise that is brighter in the upper or in the lower half: two classes that a model learns quickly."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % 2
    images = rng.integers(0, 100, (count, 16, 16, 3), dtype=np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[:8] += np.uint8(150 * (label == 0))
        image[8:] += np.uint8(150 * (label == 1))
    return ArrayImages(name, images, labels, ["upper", "lower"], {"split": name})


TRAIN, TEST = easy_images("train", 48, 0), easy_images("test", 20, 1)


def make_training(folder, *, seed=0, command="", device=CPU, **recipe):
    recipe = {"epochs": 3, "batch_size": 16, "learning_rate": 0.05, "crop_padding": 1} | recipe
    return Training("wrn_10_1", TRAIN, TEST, Recipe(**recipe), folder / "net.safetensors", device, seed, command)
