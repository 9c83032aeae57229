"""bf16 autocast: when it is used, and that its cache is off."""

import pytest
import torch

from driftlaw import hardware
from driftlaw.execution.precision import autocast_bf16, use_bf16
from tests.execution.networks import CPU


@pytest.mark.parametrize(
    ("mode", "dtype", "cpu_runs_bf16", "expected"),
    [
        ("auto", torch.float32, True, False),
        ("float32", torch.float32, True, False),
        ("bf16", torch.float32, True, True),
        ("bf16", torch.float64, True, False),
        ("bf16", torch.float32, False, False),
    ],
)
def test_a_cpu_uses_bf16_only_if_asked_for_and_supported(monkeypatch, mode, dtype, cpu_runs_bf16, expected):
    monkeypatch.setattr(hardware, "runs_bf16", lambda: cpu_runs_bf16)
    assert use_bf16(mode, CPU, dtype) is expected


def test_autocast_of_the_caller_takes_precedence(monkeypatch):
    monkeypatch.setattr(hardware, "runs_bf16", lambda: True)
    with torch.autocast("cpu", dtype=torch.float16):
        assert not use_bf16("bf16", CPU, torch.float32)


@pytest.mark.parametrize("enabled", [True, False])
def test_autocast_cache_is_off_inside_and_restored_outside(enabled):
    with autocast_bf16(enabled, CPU):
        assert torch.is_autocast_enabled("cpu") is enabled
        assert not enabled or torch.get_autocast_dtype("cpu") == torch.bfloat16
        assert not torch.is_autocast_cache_enabled()
    assert torch.is_autocast_cache_enabled()
