"""Adapt segmentation networks of torchvision, here with random weights: outputs are dicts with the key 'out'."""

import torch
from torchvision.models.segmentation import deeplabv3_resnet50, fcn_resnet50

import driftlaw

for make in (deeplabv3_resnet50, fcn_resnet50):
    model = make(weights=None, weights_backbone=None, num_classes=11).eval()
    adapter = driftlaw.adapt(model, statistics="batch")  # with trained weights: mean="imagenet"
    for _ in range(5):
        output = adapter(torch.rand(2, 3, 64, 96))  # a batch of frames
    name, shape = type(output).__name__, tuple(output["out"].shape)
    print(f"{make.__name__}: {adapter.steps} updates, {name} with logits {shape}")
