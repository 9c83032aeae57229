"""Adapt on video frames, one at a time: python video_frames.py FOLDER_OR_VIDEO. A video file needs OpenCV."""

import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import driftlaw
from driftlaw.datasets import load_dataset

ADAPT_EVERY = 2  # frames between updates; neighbouring frames of a real video are nearly identical, use 15 or more


def frames(path):
    """Yield 32×32 RGB frames: of a folder in the order of their names, of a video file, or 60 embedded foggy images."""
    if path is None:
        images = torch.from_numpy(load_dataset("cifar10-embedded").images(range(60))).permute(0, 3, 1, 2)
        yield from driftlaw.corrupt(images, "fog", severity=5).permute(0, 2, 3, 1).numpy()
    elif path.is_dir():
        for file in sorted(file for file in path.iterdir() if file.suffix.lower() in (".jpg", ".jpeg", ".png")):
            yield np.asarray(Image.open(file).convert("RGB").resize((32, 32)))
    else:
        import cv2  # pip install opencv-python

        video = cv2.VideoCapture(str(path))
        while (read := video.read())[0]:
            yield cv2.resize(cv2.cvtColor(read[1], cv2.COLOR_BGR2RGB), (32, 32), interpolation=cv2.INTER_AREA)


model = driftlaw.load_model("wrn_16_1-cifar10")
adapter = driftlaw.adapt(model, learning_rate=2e-4, statistics="window", window=32, minimum_batch=16)
for number, frame in enumerate(frames(Path(sys.argv[1]) if len(sys.argv) > 1 else None), start=1):
    image = torch.from_numpy(frame.copy()).permute(2, 0, 1)[None].float() / 255
    logits = adapter(image) if number % ADAPT_EVERY == 0 else adapter.predict(image)  # predict changes nothing
print(f"{number} frames, {adapter.steps} updates, last prediction: class {int(logits.argmax())}")
