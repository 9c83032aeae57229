"""Adapt a vision transformer of timm: its LayerNorm and linear layers. The weights are random."""

import timm
import torch

import driftlaw

model = timm.create_model("vit_tiny_patch16_224", pretrained=False, num_classes=10, img_size=64).eval()
data = timm.data.resolve_model_data_config(model)
adapter = driftlaw.adapt(model, mean=data["mean"], std=data["std"], inputs="unit", layers=["norm", "linear"])
for _ in range(3):
    logits = adapter(torch.rand(32, 3, 64, 64))  # inputs="unit": images in [0, 1], the adapter normalises them
print(f"{adapter.steps} updates, logits {tuple(logits.shape)}")
