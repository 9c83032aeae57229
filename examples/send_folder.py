"""Send a folder of images to a running `driftlaw serve`: python send_folder.py [FOLDER] [URL].

Without a folder, 600 embedded images are corrupted and written to the folder corrupted/ first. If the network predicts
a class per pixel, label maps and overlays are written to folders beside that of the images.
"""

import sys
from collections import Counter
from pathlib import Path

import torch
from PIL import Image

import driftlaw
from driftlaw.datasets import load_dataset

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "corrupted")
if len(sys.argv) == 1:
    folder.mkdir(exist_ok=True)
    images = torch.from_numpy(load_dataset("cifar10-embedded").images(range(600))).permute(0, 3, 1, 2)
    for part, name in enumerate(("fog", "gaussian_noise", "contrast")):
        some = driftlaw.corrupt(images[200 * part : 200 * (part + 1)], name, severity=5)
        for number, image in enumerate(some.permute(0, 2, 3, 1).numpy()):
            Image.fromarray(image).save(folder / f"{part}-{name}-{number:03}.png")

client = driftlaw.Client(sys.argv[2] if len(sys.argv) > 2 else "http://127.0.0.1:8000")
files = sorted(path for path in folder.iterdir() if path.suffix.lower() in (".png", ".jpg", ".jpeg"))
is_dense = bool(client.status()["class_colors"])
predictions = client.predict(files, batch_size=50, overlay=is_dense)  # 50 images per request
labels = Counter(row["classes"][0]["label"] if is_dense else row["label"] for row in predictions)
print(f"{len(predictions)} images, {client.status()['steps']} updates:", labels)
for kind in ("label_map", "overlay") if is_dense else ():
    target = folder.with_name(f"{folder.name}-{kind}s")
    target.mkdir(exist_ok=True)
    for file, row in zip(files, predictions, strict=True):
        (target / f"{file.stem}.png").write_bytes(row[kind])
