"""Adapt an image classifier of Hugging Face transformers: a ViT, including its linear layers."""

import torch
from transformers import ViTConfig, ViTForImageClassification

import driftlaw

# With network access: ViTForImageClassification.from_pretrained("google/vit-base-patch16-224").
shape = {"image_size": 32, "patch_size": 8, "hidden_size": 32, "intermediate_size": 64}
config = ViTConfig(**shape, num_hidden_layers=2, num_attention_heads=2, num_labels=10)
model = ViTForImageClassification(config).eval()

# mean and std are those of the image processor; inputs="unit": the images below are not normalised yet.
layers = ["conv", "norm", "linear"]  # the classifier head stays frozen
adapter = driftlaw.adapt(model, layers=layers, mean=0.5, std=0.5, inputs="unit")

for _ in range(3):
    logits = adapter(pixel_values=torch.rand(16, 3, 32, 32)).logits  # the type of the model's output
weights = adapter.step(torch.rand(16, 3, 32, 32)).diagnostics["layer_weights"]
names = adapter.diagnostic_labels()["layer_weights"]
print(f"{adapter.steps} updates, logits {tuple(logits.shape)}; {len(names)} tensors are adapted")
print("updated most:", names[int(weights.argmax())])
