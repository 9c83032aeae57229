"""Adapt on video frames, one at a time: python video_frames.py VIDEO, CAMERA (0, 1, …) or FOLDER.

A video file or camera needs OpenCV (pip install opencv-python). Without an argument, foggy embedded images are used.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import driftlaw
from driftlaw.datasets import load_dataset

ADAPT_EVERY = 2  # frames between updates; neighbouring frames of a real video are nearly identical, use 15 or more


def frames(source):
    """Yield uint8 RGB frames (32, 32, 3)."""
    if source is None:
        images = torch.from_numpy(load_dataset("cifar10-embedded").images(range(300))).permute(0, 3, 1, 2)
        yield from driftlaw.corrupt(images, "fog", severity=5).permute(0, 2, 3, 1).numpy()
    elif Path(source).is_dir():
        for file in sorted(file for file in Path(source).iterdir() if file.suffix.lower() in (".jpg", ".jpeg", ".png")):
            yield np.array(Image.open(file).convert("RGB").resize((32, 32)))
    else:
        import cv2

        video = cv2.VideoCapture(int(source) if source.isdigit() else source)
        while (read := video.read())[0]:  # OpenCV's frames are blue, green, red
            yield cv2.cvtColor(cv2.resize(read[1], (32, 32), interpolation=cv2.INTER_AREA), cv2.COLOR_BGR2RGB)


adapter = driftlaw.adapt(driftlaw.load_model("wrn_16_1-cifar10"))  # single frames work with the default statistics
for number, frame in enumerate(frames(sys.argv[1] if len(sys.argv) > 1 else None), start=1):
    image = torch.from_numpy(frame).permute(2, 0, 1)[None]  # the adapter divides uint8 by 255
    logits = adapter(image) if number % ADAPT_EVERY == 0 else adapter.predict(image)  # predict changes nothing
print(f"{number} frames, {adapter.steps} updates, last prediction: class {int(logits.argmax())}")
