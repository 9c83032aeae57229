"""Presets that ship with the package."""

import pytest
import torch

import driftlaw
from driftlaw.base import preset_settings
from driftlaw.datasets import dataset_info
from driftlaw.errors import UsageError
from driftlaw.methods import list_methods, registered_methods
from driftlaw.models import list_models
from driftlaw.settings import list_presets, parse, read_preset
from driftlaw.streams import StreamSettings

PAPER_METHODS = {"source", "norm", "tent", "cotta", "adacontrast", "rmt", "gtta", "autorgn", "law"}
OVERLAYS = ["fast"]
"""Presets that only change methods, to be combined with another preset."""
COMPLETE = [name for name in list_presets() if name not in OVERLAYS]
SEGMENTATION = {"shapes": 3, "camvid-c": 5, "camvid-dusk": 5, "acdc": 5}
"""Presets for segmentation, and their severities."""
BENCHMARKS = ["cifar10-c", "cifar10-c-wrn40", "cifar100-c", "imagenet-c"]


@pytest.mark.parametrize("name", list_presets())
def test_methods_and_their_settings_are_valid(name):
    preset = read_preset(name)
    expected = {"title", "methods"} | (set() if name in OVERLAYS else {"stream", "model"})
    extra = {"default_methods"} if name in ("embedded", "shapes") else set() if name in OVERLAYS else {"step"}
    assert set(preset) == expected | extra
    assert set(preset.get("default_methods", [])) <= set(preset["methods"])
    assert preset["title"]
    for method, settings in preset["methods"].items():
        assert method in list_methods()
        parse(registered_methods()[method].Config, settings, where=f"{name}, method {method}")


@pytest.mark.parametrize("name", COMPLETE)
def test_stream_and_weights_are_valid(name):
    preset = read_preset(name)
    stream = parse(StreamSettings, preset["stream"], where=name)
    assert dataset_info(stream.dataset).name == stream.dataset
    schedule, severity = "recurring" if name == "acdc" else "continual", SEGMENTATION.get(name, 5)
    assert (stream.schedule, stream.severity, stream.limit, stream.archive) == (schedule, severity, None, None)
    assert set(preset["model"]) == {"weights"}
    model, dash, trained_on = preset["model"]["weights"].partition("-")
    assert dash
    assert trained_on in ("cifar10", "cifar100", "imagenet", "shapes", "camvid", "camvid-day", "cityscapes")
    assert any(info.name.startswith(model) for info in list_models())


def test_benchmarks_use_the_statistics_of_each_batch():
    for name in BENCHMARKS:
        tables = read_preset(name)
        for method, kind in registered_methods().items():
            settings = parse(kind.Config, preset_settings(tables, method), where=method)
            assert getattr(settings, "statistics", "batch") == "batch"
            assert "statistics" not in settings.model_dump()


def test_benchmarks_compare_the_same_methods():
    methods = [set(read_preset(name)["methods"]) for name in BENCHMARKS]
    assert all(each == methods[0] for each in methods)
    assert methods[0] >= PAPER_METHODS


@pytest.mark.parametrize(
    ("name", "batch_size", "law", "cotta"),
    [
        ("cifar10-c", 200, (1e-3, 1.0, 0.1), (1e-3, 0.92, 0.01)),
        ("cifar10-c-wrn40", 200, (1e-3, 1.0, 0.1), (1e-3, 0.92, 0.01)),
        ("cifar100-c", 200, (5e-5, 0.6, 1.0), (1e-3, 0.72, 0.01)),
        ("imagenet-c", 64, (2e-4, 1.0, 10.0), (1e-2, 0.1, 0.001)),
    ],
)
def test_settings_are_those_of_the_paper(name, batch_size, law, cotta):
    preset = read_preset(name)
    methods = preset["methods"]
    assert preset["stream"]["batch_size"] == batch_size
    assert tuple(methods["law"][key] for key in ("learning_rate", "tau", "consistency_weight")) == law
    cotta_settings = methods["cotta"]
    keys = ("learning_rate", "confidence_threshold", "restore_probability")
    assert tuple(cotta_settings[key] for key in keys) == cotta
    on_imagenet = name == "imagenet-c"
    assert methods["tent"]["learning_rate"] == (2.5e-4 if on_imagenet else 1e-3)
    for method in ("roid", "cmf"):
        assert methods[method].get("batch_size") == (64 if on_imagenet else None)
    similarity = {"cifar100-c": 0.1, "imagenet-c": 0.05}.get(name, 0.4)
    assert {methods[method]["similarity_threshold"] for method in ("eta", "eata", "rdumb")} == {similarity}
    assert methods["eata"]["fisher_weight"] == (2000 if on_imagenet else 1)
    assert methods["rdumb"]["reset_every"] == 1000
    for method in ("eta", "eata", "rdumb", "roid", "cmf"):
        assert methods[method]["learning_rate"] == methods["tent"]["learning_rate"]
    for method in ("tent", "cotta", "rmt", "eta", "eata", "rdumb", "roid", "cmf"):
        assert methods[method].get("optimizer", "adam") == ("sgd" if on_imagenet else "adam")
    assert cotta_settings.get("symmetric", False) is on_imagenet
    assert methods["adacontrast"] == {"learning_rate": 2e-4, "weight_decay": 1e-4}
    assert methods["gtta"] == {"learning_rate": 1e-5}


def test_preset_name_as_method_raises():
    with pytest.raises(UsageError, match=r"'fast' is a preset, not a method\. Pass it as preset='fast'"):
        driftlaw.adapt(torch.nn.Conv2d(3, 4, 1), "fast")
