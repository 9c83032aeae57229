"""Your own folder of pictures, one sub-folder a class: python own_image_folder.py FOLDER [WEIGHTS]."""

import sys
import tempfile
from pathlib import Path

import torch
from PIL import Image

import driftlaw
from driftlaw.datasets import load_dataset


def made_up_folder(place):
    """Write 200 embedded pictures where none were given, so that the example runs."""
    dataset = load_dataset("cifar10-embedded")
    for number, pixels in enumerate(dataset.images(range(200))):
        folder = Path(place) / f"{dataset.labels[number]}"
        folder.mkdir(exist_ok=True)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return place


folder = sys.argv[1] if len(sys.argv) > 1 else made_up_folder(tempfile.mkdtemp())
pictures = load_dataset(f"folder:{folder}")  # read when asked for; large ones become 224×224
model = driftlaw.load_model(sys.argv[2] if len(sys.argv) > 2 else "wrn_16_1-cifar10")
adapter = driftlaw.adapt(model)

wrong = 0
order = torch.randperm(len(pictures), generator=torch.Generator().manual_seed(0)).numpy()
for start in range(0, len(order), 50):  # shuffled: batch statistics of one class alone say little of the rest
    chosen = order[start : start + 50]
    images = torch.from_numpy(pictures.images(chosen)).permute(0, 3, 1, 2).float() / 255
    wrong += int((adapter(images).argmax(1) != torch.from_numpy(pictures.labels[chosen])).sum())
print(f"{len(pictures)} pictures of {pictures.num_classes} classes: {100 * wrong / len(pictures):.1f} % wrong")
