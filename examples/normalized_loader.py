"""Evaluate an adapter on a DataLoader whose images are normalised for the model. The weights are random."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import driftlaw

mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of your transform
images = (torch.rand(256, 3, 32, 32) - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
loader = DataLoader(TensorDataset(images, torch.randint(10, (256,))), batch_size=64)  # labels are optional

layers = nn.Conv2d(3, 16, 3, stride=2), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
adapter = driftlaw.adapt(nn.Sequential(*layers, nn.Linear(16, 10)).eval(), mean=mean, std=std)
record = driftlaw.run(loader, adapter)
print(f"{adapter.steps} updates, {record.mean_error:.1f} % wrong")
