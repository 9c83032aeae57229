"""Inputs of an adapter: conversion to [0, 1], and checks with a remedy."""

import copy
import pickle

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import driftlaw
from driftlaw.errors import DriftlawWarning, UsageError
from driftlaw.models.normalize import Normalize
from driftlaw.testing.fixtures import make_images, tiny_model
from driftlaw.testing.snapshots import differences, state_of
from tests.base.models import small_model

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
normalize = Normalize(MEAN, STD)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (
            make_images()[0],
            r"shape \(3, 16, 16\): expected \(n, channels, height, width\); for a single image use images.unsqueeze",
        ),
        (make_images()[0].movedim(0, -1), r"for a single image use images.permute\(2, 0, 1\).unsqueeze\(0\)"),
        (make_images().movedim(1, -1), r"shape \(8, 16, 16, 3\).*use images.permute\(0, 3, 1, 2\)"),
        (make_images()[None], r"shape \(1, 8, 3, 16, 16\): expected \(n, channels, height, width\)$"),
        ((make_images() * 255).int(), r"torch.int32: expected floats, or bytes from 0 to 255, images.to"),
        (make_images() * 255, "expected .0, 1.; divide by 255"),
        (
            make_images() * 2 - 1,
            r"values from -[0-9.]+ to [0-9.]+: expected .0, 1.; these look like normalised images; pass the mean=",
        ),
        (normalize(make_images()), r"values from -[0-9.]+ to [0-9.]+: .* pass the mean= and std= of the normalisation"),
        (make_images() * 1.05, r"use images.clamp\(0, 1\)"),
        (make_images() * torch.nan, "some pixels are NaN"),
        (make_images() * torch.inf, "expected .0, 1.|NaN"),
        (make_images()[:0], "the batch is empty"),
        (make_images()[:, :, :0], "the batch is empty"),
        (make_images().numpy(), r"found ndarray of shape \(8, 3, 16, 16\). Pass torch.from_numpy\(images\)\.$"),
        (make_images().movedim(1, -1).numpy(), r"Pass torch.from_numpy\(images\).permute\(0, 3, 1, 2\)\."),
        (np.zeros((16, 16, 3), np.uint8), r"Pass torch.from_numpy\(images\).permute\(2, 0, 1\).unsqueeze\(0\)\."),
        (Image.new("RGB", (16, 16)), r"found Image. Pass torch.from_numpy\(numpy.array\(image\)\).permute\(2, 0, 1\)"),
        ([make_images(), torch.zeros(8)], r"found list of 2 items. Pass batch\[0\]\."),
        ((make_images(),), r"found tuple of 1 items. Pass batch\[0\]\."),
        (list(make_images()), r"found list of 8 items. Pass torch.stack\(batch\)\."),
        ({"labels": torch.zeros(8), "pixel_values": make_images()}, r"Pass batch\['pixel_values'\]\."),
        (None, "found NoneType"),
        ([Image.new("RGB", (16, 16))] * 2, r"found list of 2 PIL images. Pass a tensor of shape \(n, channels"),
        (make_images().to_sparse(), "sparse, nested or meta"),
        (torch.nested.nested_tensor(list(make_images())), "sparse, nested or meta"),
        (make_images().to("meta"), "sparse, nested or meta"),
    ],
)
def test_wrong_images_are_refused_with_a_remedy(adapter, images, message):
    before = state_of(adapter)
    for call in (adapter, adapter.step, adapter.predict):
        with pytest.raises(UsageError, match=message):
            call(images)
    assert differences(before, state_of(adapter)) == []


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("guard", [False, True])
def test_images_of_another_float_dtype_are_converted(dtype, guard):
    """Datasets made with numpy have float64 images; run() accepts them, too."""
    one, other = (driftlaw.adapt(tiny_model(), "tent", guard=guard) for _ in range(2))
    images = make_images(dtype=dtype)
    assert torch.equal(one(images), other(images.float()))
    assert torch.equal(one.predict(images), other.predict(images.float()))


def test_a_wrong_number_of_channels_is_named_behind_a_normalisation():
    with pytest.raises(UsageError, match="channels: found 4, the model's first convolution expects 3"):
        driftlaw.adapt(nn.Sequential(Normalize(MEAN, STD), tiny_model()), "tent")(torch.rand(8, 4, 16, 16))


def test_all_problems_are_listed(adapter):
    with pytest.raises(UsageError, match=r"(?s)shape \(3, 16, 16\).*dtype torch.int32"):
        adapter((make_images()[0] * 255).int())


def test_values_slightly_outside_are_accepted(adapter):
    adapter(make_images() * 1.0005)


def test_many_channels_of_narrow_images_are_not_taken_for_channels_last():
    model = nn.Sequential(nn.Conv2d(12, 4, 1), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 48, 4))
    assert driftlaw.adapt(model, "norm")(torch.rand(2, 12, 16, 3)).shape == (2, 4)


def test_bytes_are_divided_by_255(adapter):
    pixels = (make_images() * 255).byte()
    assert torch.equal(adapter.predict(pixels), adapter.predict(pixels.float() / 255))
    other = copy.deepcopy(adapter)
    assert torch.equal(adapter(pixels), other(pixels.float() / 255))


@pytest.mark.parametrize("method", ["source", "tent", "law", "cotta"])
def test_a_normalised_model_adapts_as_with_a_first_layer(method):
    """In float64, where converting to [0, 1] and back changes the last digits only."""
    model, layer = tiny_model().double(), Normalize().double()
    settings = {"augmentations": 2} if method == "cotta" else {}
    layer.mean, layer.std = (torch.tensor(numbers, dtype=torch.float64).view(1, 3, 1, 1) for numbers in (MEAN, STD))
    reference = driftlaw.adapt(nn.Sequential(layer, model), method, **settings)
    unit = driftlaw.adapt(model, method, mean=MEAN, std=STD, inputs="unit", **settings)
    normalized = driftlaw.adapt(model, method, mean=torch.tensor(MEAN), std=np.array(STD), **settings)
    for number in range(3):
        images = make_images(number, dtype=torch.float64)
        expected = reference(images)
        assert torch.equal(unit(images), expected)
        torch.testing.assert_close(normalized(layer(images)), expected, rtol=0, atol=1e-9)
    predicted = reference.predict(images)
    assert torch.equal(unit.predict(images), predicted)
    torch.testing.assert_close(normalized.predict(layer(images)), predicted, rtol=0, atol=1e-9)


def test_normalisation_changes_no_name():
    plain, normalized = driftlaw.adapt(tiny_model()), driftlaw.adapt(tiny_model(), mean=MEAN, std=STD)
    assert list(plain.state_dict()) == list(normalized.state_dict())
    assert [name for name, _ in plain.named_parameters()] == [name for name, _ in normalized.named_parameters()]
    assert plain.trainable_names == normalized.trainable_names


def test_a_normalised_adapter_is_reset_saved_copied_and_pickled():
    adapter = driftlaw.adapt(tiny_model(), "tent", mean=MEAN, std=STD, statistics="window", window=12)
    images = normalize(make_images())
    first = adapter(images)
    state = copy.deepcopy(adapter.state_dict())
    loaded = driftlaw.adapt(tiny_model(), "tent", mean=MEAN, std=STD, statistics="window", window=12)
    loaded.load_state_dict(state)
    others = [loaded, copy.deepcopy(adapter), pickle.loads(pickle.dumps(adapter))]
    second = adapter(images)
    assert all(torch.equal(other(images), second) for other in others)
    adapter.reset()
    assert torch.equal(adapter(images), first)


def test_a_state_of_another_normalisation_is_reported():
    state = driftlaw.adapt(tiny_model(), "tent", mean=MEAN, std=STD).state_dict()
    with pytest.warns(DriftlawWarning, match=r"other settings: mean \(\[0.485"):
        driftlaw.adapt(tiny_model(), "tent").load_state_dict(state)


def test_bytes_are_unit_images_whatever_the_loader_normalises():
    pixels = (make_images() * 255).byte()
    adapters = [
        driftlaw.adapt(tiny_model(), "tent", mean=MEAN, std=STD, inputs=kind) for kind in ("unit", "normalized")
    ]
    one, two = (adapter(pixels) for adapter in adapters)
    assert torch.equal(one, two)
    assert torch.equal(one, driftlaw.adapt(tiny_model(), "tent", mean="imagenet", inputs="unit")(pixels.float() / 255))


def test_a_step_in_threads_normalises_both_passes(monkeypatch):
    monkeypatch.setattr("driftlaw.execution.executor.can_use_threads", lambda: torch.get_num_threads() % 2 == 0)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        pair = [driftlaw.adapt(tiny_model(), mean=MEAN, std=STD, overlap=overlap) for overlap in (True, False)]
        for _ in range(2):
            one, two = (adapter(normalize(make_images())) for adapter in pair)
            torch.testing.assert_close(one, two, rtol=0, atol=1e-4)
    finally:
        torch.set_num_threads(threads)


def test_one_number_is_used_for_all_channels():
    images = make_images()
    one = driftlaw.adapt(small_model(), "source", mean=0.5, std=0.25)
    three = driftlaw.adapt(one.model, "source", mean=[0.5] * 3, std=0.25)
    assert one.inputs.mean_std == ([0.5], [0.25])
    assert three.inputs.mean_std == ([0.5] * 3, [0.25] * 3)
    assert torch.equal(one.inputs.to_unit((images - 0.5) / 0.25, one.model), ((images - 0.5) / 0.25 * 0.25 + 0.5))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mean": 0.5}, r"Found mean=\(0.5,\) and std=None. Pass both"),
        ({"std": 0.5}, "Found mean=None and std="),
        ({"mean": [0.5, 0.5], "std": STD}, "mean has 2 numbers and std 3. Pass one number per channel"),
        ({"mean": [], "std": []}, "mean has 0 numbers"),
        ({"mean": "imagnet"}, "Unknown normalisation 'imagnet'. Did you mean 'imagenet'"),
        ({"mean": "imagenet", "std": 0.5}, "Pass both as numbers, or only mean, as a name"),
        ({"mean": "caffe"}, "is for BGR images"),
        ({"mean": 0.5, "std": 0}, r"std is \[0.0\]. Expected numbers above 0"),
        ({"mean": [object()], "std": 0.5}, "expected one number, one number per channel, or a name"),
        ({"mean": torch.tensor(1j), "std": 0.5}, "expected one number, one number per channel, or a name"),
        ({"mean": 10**400, "std": 0.5}, "expected one number, one number per channel, or a name"),
        ({"inputs": "unit"}, "inputs='unit' has no effect without mean and std"),
        ({"inputs": "bytes", "mean": "imagenet"}, "inputs = 'bytes'"),
    ],
)
def test_a_wrong_normalisation_is_refused_at_construction(settings, message):
    with pytest.raises(UsageError, match=message):
        driftlaw.adapt(small_model(), "source", **settings)


@pytest.mark.parametrize(
    ("settings", "images", "message"),
    [
        ({}, make_images() * 255, r"which are .* after x · std \+ mean: .*set inputs='unit'"),
        ({}, Normalize([0.5] * 3, [0.1] * 3)(make_images()), "check mean and std"),
        ({"inputs": "unit"}, normalize(make_images()), "for normalised images omit inputs='unit'"),
        ({"mean": [0.5] * 4, "std": 0.2}, make_images(), "found 3, but mean and std have 4 numbers"),
    ],
)
def test_images_that_do_not_fit_the_normalisation_are_refused(settings, images, message):
    adapter = driftlaw.adapt(small_model(), "source", **{"mean": MEAN, "std": STD} | settings)
    with pytest.raises(UsageError, match=message):
        adapter(images)


def test_unit_images_for_an_adapter_of_normalised_ones_are_reported_once(recwarn):
    adapter = driftlaw.adapt(small_model(), "source", mean=MEAN, std=STD)
    with pytest.warns(DriftlawWarning, match="like images that are not normalised.*set inputs='unit'"):
        adapter(make_images())
    adapter(make_images())
    assert not recwarn.list
