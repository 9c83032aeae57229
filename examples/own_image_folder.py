"""Adapt on a folder with one sub-folder per class: python own_image_folder.py FOLDER [WEIGHTS]."""

import sys
import tempfile
from pathlib import Path

import torch
from PIL import Image

import driftlaw
from driftlaw.datasets import load_dataset


def example_folder():
    """Write 200 foggy images to a temporary folder, so that the example runs without arguments."""
    dataset, root = load_dataset("cifar10-embedded"), Path(tempfile.mkdtemp())
    images = driftlaw.corrupt(torch.from_numpy(dataset.images(range(200))).permute(0, 3, 1, 2), "fog", severity=5)
    for index, pixels in enumerate(images.permute(0, 2, 3, 1).numpy()):
        folder = root / str(dataset.labels[index])
        folder.mkdir(exist_ok=True)
        Image.fromarray(pixels).save(folder / f"{index}.png")
    return root


folder = sys.argv[1] if len(sys.argv) > 1 else example_folder()
model = driftlaw.load_model(sys.argv[2] if len(sys.argv) > 2 else "wrn_16_1-cifar10")
stream = driftlaw.make_stream(folder, batch_size=50)  # shuffled; large images are resized to 224×224
for method in ("source", "law"):
    record = driftlaw.run(stream, driftlaw.adapt(model, method))
    error = "no labels" if record.mean_error is None else f"{record.mean_error:.1f} % wrong"
    print(f"{method}: {len(stream.indices)} images of {stream.num_classes} classes, {error}")
