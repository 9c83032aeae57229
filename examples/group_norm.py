"""Adapt a network with GroupNorm. Images of small batches are predicted at once and collected for the next update."""

import torch
from torch import nn

import driftlaw

stem = [nn.Conv2d(3, 32, 3, stride=2), nn.GroupNorm(8, 32), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.GroupNorm(8, 64)]
model = nn.Sequential(*stem, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).eval()  # your network
adapter = driftlaw.adapt(model)
for batch_size in (1, 64, 64):
    logits = adapter(torch.rand(batch_size, 3, 32, 32))
print(f"{adapter.steps} updates, logits {tuple(logits.shape)}")
