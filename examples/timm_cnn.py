"""Adapt a CNN of timm that expects normalised images. The weights are random; pretrained=True loads trained ones."""

import timm
import torch

import driftlaw

model = timm.create_model("resnet18", pretrained=False, num_classes=10).eval()
data = timm.data.resolve_model_data_config(model)
adapter = driftlaw.adapt(model, mean=data["mean"], std=data["std"])  # receives what the model receives
normalize = timm.data.create_transform(**data).transforms[-1]
for _ in range(3):
    logits = adapter(normalize(torch.rand(32, 3, 64, 64)))  # a batch of your loader
print(f"{adapter.steps} updates, logits {tuple(logits.shape)}")
