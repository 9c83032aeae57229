"""An image classifier of Hugging Face's transformers adapts: a ViT, whose linear layers are taken in."""

import torch
from transformers import ViTConfig, ViTForImageClassification

import driftlaw
from driftlaw.models.normalize import Normalize

# With a network to download from: ViTForImageClassification.from_pretrained("google/vit-base-patch16-224").
shape = {"image_size": 32, "patch_size": 8, "hidden_size": 32, "intermediate_size": 64}
config = ViTConfig(**shape, num_hidden_layers=2, num_attention_heads=2, num_labels=10)
network = ViTForImageClassification(config).eval()

# The processor's normalisation becomes the first layer; .logits is found in what the network answers.
model = torch.nn.Sequential(Normalize([0.5] * 3, [0.5] * 3), network)
adapter = driftlaw.adapt(model, layers=["conv", "norm", "linear"])  # the head stays as it is

for _ in range(3):
    logits = adapter(torch.rand(16, 3, 32, 32))
weights = adapter.step(torch.rand(16, 3, 32, 32)).facts["layer_weights"]
names = adapter.diagnostic_labels()["layer_weights"]
print(f"{adapter.steps} steps, logits {tuple(logits.shape)}; {len(names)} tensors learn")
print("learns most:", names[int(weights.argmax())])
