"""Adapt a U-Net of segmentation_models_pytorch, here with random weights."""

import segmentation_models_pytorch as smp
import torch

import driftlaw

model = smp.Unet("resnet18", encoder_weights=None, classes=11).eval()
adapter = driftlaw.adapt(model, statistics="batch")  # encoders with ImageNet weights: mean="imagenet"
for _ in range(5):
    logits = adapter(torch.rand(2, 3, 64, 96))  # a batch of frames
print(f"{adapter.steps} updates, logits {tuple(logits.shape)}")
