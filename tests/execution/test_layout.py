"""Memory format: channels-last by default, contiguous if the network needs it."""

import subprocess
import sys

import pytest
import torch
from torch import nn

import driftlaw
from driftlaw.execution.layout import use_channels_last
from driftlaw.execution.threads import can_use_threads
from tests.execution.networks import batches, network, views_features


def test_float32_networks_use_channels_last_and_float64_ones_do_not():
    assert use_channels_last("auto", network())
    assert not use_channels_last("auto", network(torch.float64))
    assert use_channels_last("on", network(torch.float64))
    assert not use_channels_last("off", network())
    assert not use_channels_last("on", nn.Linear(2, 2))
    weight = driftlaw.adapt(network(), "norm").model[0].weight
    assert weight.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("method", ["source", "tent", "law"])
def test_a_network_that_views_its_features_falls_back_to_contiguous(two_threads, method, threads):
    torch.set_num_threads(threads)
    assert can_use_threads() is (threads == 2)
    automatic = driftlaw.adapt(views_features(), method)
    contiguous = driftlaw.adapt(views_features(), method, channels_last="off")
    for images in batches(3):
        assert torch.equal(automatic(images), contiguous(images))
    assert not automatic.execution_info()["channels_last"]
    assert automatic.model.conv.weight.is_contiguous()


def test_channels_last_on_raises_instead_of_falling_back():
    with pytest.raises(RuntimeError, match="view size"):
        driftlaw.adapt(views_features(), "source", channels_last="on")(batches(1)[0])


def test_both_formats_give_the_same_logits_up_to_rounding():
    off, on = (driftlaw.adapt(network(torch.float64), "law", channels_last=mode) for mode in ("off", "on"))
    assert on.execution_info()["channels_last"]
    (images,) = batches(1, dtype=torch.float64)
    torch.testing.assert_close(off(images), on(images), rtol=0, atol=1e-12)
    # One LAW step amplifies a rounding error of 1e-16 in a gradient by up to η/ε = 1e5.
    torch.testing.assert_close(off(images), on(images), rtol=0, atol=1e-9)


def test_networks_with_group_norm_stay_contiguous_and_can_be_adapted():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 4)
    )
    adapter = driftlaw.adapt(model, "tent")  # only norm layers are trained, so the input of the first needs no gradient
    assert adapter(torch.rand(8, 3, 16, 16)).isfinite().all()
    assert not adapter.execution_info()["channels_last"]
    assert use_channels_last("on", model)


GROUP_NORM_STEPS = """
import torch
from torch import nn

import driftlaw


class ChannelsLast(nn.Module):
    def forward(self, values):
        return values.contiguous(memory_format=torch.channels_last)


def network(*first):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), *first, nn.GroupNorm(2, 8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.GroupNorm(2, 8),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4),
    )


def make(case):
    if case == "setting":
        return driftlaw.adapt(network(), "tent", channels_last="on")
    if case == "model":
        return driftlaw.adapt(network().to(memory_format=torch.channels_last), "tent")
    if case == "model and off":
        return driftlaw.adapt(network().to(memory_format=torch.channels_last), "tent", channels_last="off")
    if case == "moved":
        return driftlaw.adapt(network(), "tent").to(memory_format=torch.channels_last)
    return driftlaw.adapt(network(ChannelsLast()) if case == "inside" else network(), "tent")


for case in ["setting", "model", "model and off", "moved", "inside", "images"]:
    print(case, flush=True)
    adapter = make(case)
    for _ in range(60):
        images = torch.rand(16, 3, 32, 32).contiguous(memory_format=torch.channels_last)
        assert adapter(images).isfinite().all()
"""


def test_group_norm_on_a_cpu_does_not_crash_with_channels_last_tensors():
    done = subprocess.run([sys.executable, "-c", GROUP_NORM_STEPS], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
