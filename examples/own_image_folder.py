"""Adapt on a folder with one sub-folder per class: python own_image_folder.py FOLDER [WEIGHTS]."""

import sys
import tempfile
from pathlib import Path

import torch
from PIL import Image

import driftlaw
from driftlaw.datasets import load_dataset


def example_folder():
    """Write 200 embedded images to a temporary folder, so that the example runs without arguments."""
    dataset, root = load_dataset("cifar10-embedded"), Path(tempfile.mkdtemp())
    for index, pixels in enumerate(dataset.images(range(200))):
        folder = root / str(dataset.labels[index])
        folder.mkdir(exist_ok=True)
        Image.fromarray(pixels).save(folder / f"{index}.png")
    return root


folder = sys.argv[1] if len(sys.argv) > 1 else example_folder()
dataset = load_dataset(f"folder:{folder}")  # images are read when needed; large ones are resized to 224×224
model = driftlaw.load_model(sys.argv[2] if len(sys.argv) > 2 else "wrn_16_1-cifar10")
adapter = driftlaw.adapt(model)

wrong = 0
order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(0)).numpy()
for start in range(0, len(order), 50):  # shuffled: a batch of one class has the statistics of one class
    batch = order[start : start + 50]
    images = torch.from_numpy(dataset.images(batch)).permute(0, 3, 1, 2).float() / 255
    wrong += int((adapter(images).argmax(1) != torch.from_numpy(dataset.labels[batch])).sum())
print(f"{len(dataset)} images of {dataset.num_classes} classes: {100 * wrong / len(dataset):.1f} % wrong")
