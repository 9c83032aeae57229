"""LAW in a plain PyTorch loop: the embedded model on foggy images, with and without adaptation."""

import torch

import driftlaw
from driftlaw.datasets import load_dataset

model = driftlaw.load_model("wrn_16_1-cifar10")  # any nn.Module that maps images in [0, 1] to logits
adapter = driftlaw.adapt(model)  # LAW, on a copy of the model

dataset = load_dataset("cifar10-embedded")
images = torch.from_numpy(dataset.images(range(400))).permute(0, 3, 1, 2)  # uint8, (n, 3, 32, 32)
images = driftlaw.corrupt(images, "fog", severity=5).float() / 255
labels = torch.from_numpy(dataset.labels[:400])  # only to measure the error

wrong = {"no adaptation": 0, "LAW": 0}
for batch, truth in zip(images.split(100), labels.split(100), strict=True):
    with torch.no_grad():
        wrong["no adaptation"] += int((model(batch).argmax(1) != truth).sum())
    wrong["LAW"] += int((adapter(batch).argmax(1) != truth).sum())  # predicts, then updates

for name, count in wrong.items():
    print(f"{name}: {100 * count / len(images):.1f} % wrong in fog")

torch.save(adapter.state_dict(), "adapter.pt")  # method, settings, weights, optimizer, random generator
adapter.reset()  # back to the source model, bit for bit
adapter.load_state_dict(torch.load("adapter.pt", weights_only=True))  # continue where it was saved
