"""Adapt a SegFormer of Hugging Face, here with random weights: its logits have a quarter of the image's resolution."""

import torch
from transformers import SegformerConfig, SegformerForSemanticSegmentation

import driftlaw

# With network access: from_pretrained("nvidia/segformer-b0-finetuned-cityscapes-1024-1024").
model = SegformerForSemanticSegmentation(SegformerConfig(num_labels=11)).eval()
adapter = driftlaw.adapt(model, mean="imagenet", statistics="batch")  # as in the image processor
for _ in range(5):
    output = adapter(pixel_values=torch.randn(2, 3, 64, 96).clamp(-1.5, 1.5))
print(f"{adapter.steps} updates, {type(output).__name__} with logits {tuple(output.logits.shape)}")
