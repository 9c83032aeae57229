"""Adapt image classifiers of Hugging Face transformers: a ViT and a ConvNeXt with random weights."""

import torch
from transformers import ConvNextConfig, ConvNextForImageClassification, ViTConfig, ViTForImageClassification

import driftlaw

# With network access: ViTForImageClassification.from_pretrained("google/vit-base-patch16-224").
size = {"image_size": 32, "patch_size": 8, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
vit = ViTForImageClassification(ViTConfig(**size, num_attention_heads=2, num_labels=10))
convnext = ConvNextForImageClassification(
    ConvNextConfig(hidden_sizes=[8, 16], depths=[1, 1], num_stages=2, num_labels=10)
)
for model in (vit.eval(), convnext.eval()):
    adapter = driftlaw.adapt(model, mean=0.5, std=0.5)  # as in the image processor
    output = adapter(pixel_values=torch.rand(32, 3, 32, 32) * 2 - 1)  # pixel values of the image processor
    print(f"{type(model).__name__}: {type(output).__name__}, logits {tuple(output.logits.shape)}")
