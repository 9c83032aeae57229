"""Profiling: time, FLOPs and memory."""

import time

import pytest
import torch
from torch import nn

from driftlaw.profiling import count_flops, is_gpu_shared, peak_bytes, timed

CPU = torch.device("cpu")


def test_a_timer_measures_its_block():
    with timed(CPU) as timer:
        time.sleep(0.02)
        assert timer.seconds == 0.0
    assert timer.seconds >= 0.02


def test_a_multiply_add_is_two_flops():
    images, layer = torch.rand(2, 3, 8, 8), torch.nn.Conv2d(3, 5, 3, padding=1)
    output, flops = count_flops(lambda: layer(images))
    assert output.shape == (2, 5, 8, 8)
    assert flops == 2 * (2 * 8 * 8) * 5 * (3 * 3 * 3)


def test_the_backward_pass_is_counted_too():
    weight, images = torch.rand(5, 7, requires_grad=True), torch.rand(3, 7)
    _, flops = count_flops(lambda: (images @ weight.T).sum().backward())
    assert flops == 2 * 2 * 3 * 5 * 7  # forward, and the gradient of the weight


@pytest.mark.parametrize("layer", [nn.Conv2d(8, 16, 3, groups=4), nn.Conv2d(8, 16, 3), nn.ConvTranspose2d(8, 16, 2)])
def test_the_backward_pass_of_a_convolution_costs_two_forward_passes(layer):
    images = torch.rand(2, 8, 6, 6, requires_grad=True)
    output, forward = count_flops(lambda: layer(images))
    _, backward = count_flops(output.sum().backward)
    assert backward == 2 * forward
    frozen = layer.requires_grad_(False)(images)
    assert count_flops(frozen.sum().backward)[1] == forward


def test_peak_memory_is_in_bytes():
    assert 50e6 < peak_bytes(CPU) < 100e9


def test_a_gpu_is_shared_if_more_memory_is_used_than_by_torch_and_its_context(monkeypatch):
    gib = 2**30
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 10 * gib)
    for free, shared in ((69, False), (60, True)):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device, free=free: (free * gib, 80 * gib))
        assert is_gpu_shared(torch.device("cuda")) is shared
    assert is_gpu_shared(CPU) is False
