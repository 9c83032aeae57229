import pytest
import torch

from benchmarks.precision import usable_precision
from driftlaw import hardware

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(
    ("setting", "device", "supported", "precision"),
    [
        ("bf16", CPU, True, "bf16"),
        ("bf16", CPU, False, "float32"),
        ("bf16", GPU, True, "bf16"),
        ("bf16", GPU, False, "float32"),
        ("auto", CPU, True, "float32"),
        ("auto", GPU, True, "bf16"),
        ("auto", GPU, False, "float32"),
        ("float32", CPU, True, "float32"),
        ("float32", GPU, True, "float32"),
    ],
)
def test_bf16_is_used_if_supported_and_on_a_cpu_only_if_requested(monkeypatch, setting, device, supported, precision):
    monkeypatch.setattr(hardware, "runs_bf16", lambda: supported)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: supported)
    assert usable_precision(setting, device) == precision
