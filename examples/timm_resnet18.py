"""A ResNet-18 of timm adapts in three lines. Weights are left random here; pretrained=True fetches them."""

import timm
import torch

import driftlaw
from driftlaw.models.normalize import Normalize

network = timm.create_model("resnet18", pretrained=False, num_classes=10).eval()
numbers = network.pretrained_cfg  # the mean and std its weights were trained with
model = torch.nn.Sequential(Normalize(numbers["mean"], numbers["std"]), network)  # images stay in [0, 1]

adapter = driftlaw.adapt(model, learning_rate=2e-4, consistency_weight=0.1)  # 0.01 × the number of classes
for _ in range(3):
    images = torch.rand(16, 3, 64, 64)  # your camera
    logits = adapter(images)
print(f"{adapter.steps} steps, logits {tuple(logits.shape)}")

# One image at a time: a sliding window of recent images lends each its statistics.
camera = driftlaw.adapt(model, statistics="window", window=16, minimum_batch=8)
for image in torch.rand(10, 3, 64, 64):
    logits = camera(image[None])
print(f"{camera.steps} steps in 10 single images")
