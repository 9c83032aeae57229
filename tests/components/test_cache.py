"""Fingerprints of models and settings."""

import torch
from torch import nn

from driftlaw.components.cache import fingerprint


def test_fingerprints_differ_for_other_weights_and_settings():
    layer = nn.Linear(2, 2)
    first = fingerprint("warm-up", layer, {"seed": 0, "rate": 1e-3})
    assert first == fingerprint("warm-up", layer, {"rate": 1e-3, "seed": 0})
    assert first != fingerprint("warm-up", layer, {"seed": 1, "rate": 1e-3})
    with torch.no_grad():
        layer.bias += 1e-3
    assert first != fingerprint("warm-up", layer, {"seed": 0, "rate": 1e-3})
