"""Adapt an image classifier of Hugging Face transformers: a ViT, including its linear layers."""

import torch
from transformers import ViTConfig, ViTForImageClassification

import driftlaw
from driftlaw.models.normalize import Normalize

# With network access: ViTForImageClassification.from_pretrained("google/vit-base-patch16-224").
shape = {"image_size": 32, "patch_size": 8, "hidden_size": 32, "intermediate_size": 64}
config = ViTConfig(**shape, num_hidden_layers=2, num_attention_heads=2, num_labels=10)
network = ViTForImageClassification(config).eval()

# Normalisation of the image processor becomes the first layer. The output has an attribute .logits, which is found.
model = torch.nn.Sequential(Normalize([0.5] * 3, [0.5] * 3), network)
adapter = driftlaw.adapt(model, layers=["conv", "norm", "linear"])  # the classifier head stays frozen

for _ in range(3):
    logits = adapter(torch.rand(16, 3, 32, 32))
weights = adapter.step(torch.rand(16, 3, 32, 32)).diagnostics["layer_weights"]
names = adapter.diagnostic_labels()["layer_weights"]
print(f"{adapter.steps} updates, logits {tuple(logits.shape)}; {len(names)} tensors are adapted")
print("updated most:", names[int(weights.argmax())])
