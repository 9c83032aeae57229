"""Adapt a ResNet-18 of timm. The weights are random here; pretrained=True downloads trained ones."""

import timm
import torch

import driftlaw
from driftlaw.models.normalize import Normalize

network = timm.create_model("resnet18", pretrained=False, num_classes=10).eval()
config = network.pretrained_cfg  # mean and standard deviation of the training images
model = torch.nn.Sequential(Normalize(config["mean"], config["std"]), network)  # takes images in [0, 1]

adapter = driftlaw.adapt(model, learning_rate=2e-4, consistency_weight=0.1)  # 0.01 × the number of classes
for _ in range(3):
    images = torch.rand(16, 3, 64, 64)  # your images
    logits = adapter(images)
print(f"{adapter.steps} updates, logits {tuple(logits.shape)}")

# One image at a time: BatchNorm uses the statistics of a window of recent images.
camera = driftlaw.adapt(model, statistics="window", window=16, minimum_batch=8)
for image in torch.rand(10, 3, 64, 64):
    logits = camera(image[None])
print(f"{camera.steps} updates in 10 single images")
