"""``driftlaw export``, called as a user calls it."""

import json

import numpy as np
import pytest
import torch
import typer
from PIL import Image
from typer.testing import CliRunner

from driftlaw.cli.export import export
from driftlaw.errors import DataError, DriftlawWarning, UsageError
from driftlaw.methods import make_adapter
from driftlaw.models import load_model
from driftlaw.streams import make_stream

WEIGHTS = "wrn_16_1-cifar10"


@pytest.fixture
def call(monkeypatch, tmp_path):
    app = typer.Typer()
    app.command()(export)
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments):
        result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=True)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return invoke


@pytest.fixture(scope="module")
def batch():
    """The last images of the embedded stream."""
    stream = make_stream("embedded")
    return next(iter(stream.iter_from(len(stream) - 1))).images[-64:]


@pytest.fixture
def adapter(batch, tmp_path):
    """An adapter after one step, with its state in a file."""
    adapter = make_adapter("tent", load_model(WEIGHTS), {})
    adapter(batch)
    torch.save(adapter.state_dict(), tmp_path / "adapter.pt")
    return adapter


def test_saved_adapter_is_exported_with_statistics_of_a_stream(call, adapter, batch):
    result = call("adapter.pt", "out.pt2", "--model", WEIGHTS, "--calibrate", "embedded", "--images", 64, "--json")
    document = json.loads(result.stdout)
    assert document["facts"]["method"] == "tent"
    assert document["facts"]["steps"] == 1
    assert document["facts"]["calibration"] == "embedded"
    assert document["images"] == 64
    assert document["max_difference"] < 1e-4
    program = torch.export.load("out.pt2").module()
    torch.testing.assert_close(program(batch), adapter.predict(batch), atol=5e-3, rtol=0)
    assert program(batch[:1]).shape == (1, 10)


def test_state_can_be_loaded_into_weights_or_an_architecture(call, adapter):
    call(WEIGHTS, "over.safetensors", "--state", "adapter.pt", "--calibrate", "cifar10-embedded", "--images", 16)
    with pytest.warns(DriftlawWarning, match="Using 'none'"):
        call("adapter.pt", "bare.safetensors", "--model", "wrn_16_1", "--calibrate", "cifar10-embedded", "--images", 16)
    over, bare = (load_model(f"{name}.safetensors").state_dict() for name in ("over", "bare"))
    assert all(torch.equal(over[name], bare[name]) for name in over)
    assert not torch.equal(over["norm.weight"], load_model(WEIGHTS).norm.weight)


def test_network_of_a_python_file_is_exported_with_a_checkpoint(call, tmp_path):
    (tmp_path / "mynet.py").write_text(
        "from torch import nn\n\n\ndef make():\n"
        "    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten())\n"
    )
    trained = load_model("mynet.py:make").network
    torch.nn.init.constant_(trained[1].bias, 2.0)
    torch.save({"model_state_dict": trained.state_dict()}, "mynet.pth")
    document = json.loads(
        call("mynet.py:make", "out.pt2", "--checkpoint", "mynet.pth", "--image-size", 32, "--json").stdout
    )
    assert document["folded"] == 1
    images = torch.rand(3, 3, 32, 32)
    torch.testing.assert_close(torch.export.load("out.pt2").module()(images), trained(images), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("option", ["--normalize", "--normalise"])
def test_normalization_can_be_given_for_an_architecture(call, adapter, recwarn, option):
    call("adapter.pt", "out.safetensors", "--model", "wrn_16_1", option, "half")
    assert load_model("out.safetensors").info["normalise"]["mean"] == [0.5, 0.5, 0.5]
    assert not [warning for warning in recwarn if "normalisation" in str(warning.message)]


def test_without_calibration_the_stored_statistics_are_kept(call):
    result = call(WEIGHTS, "out.safetensors")
    assert "No --calibrate given" in result.stderr
    assert "not adapted" in result.stdout
    assert torch.equal(load_model("out.safetensors").norm.running_mean, load_model(WEIGHTS).norm.running_mean)


def test_window_of_the_adapter_is_used_without_calibrate(call, batch, tmp_path):
    adapter = make_adapter("norm", load_model(WEIGHTS), {"statistics": "window", "window": 32})
    adapter(batch)
    torch.save(adapter.state_dict(), tmp_path / "window.pt")
    result = call(WEIGHTS, "out.safetensors", "--state", "window.pt")
    assert "last 32 images" in result.stderr
    model = load_model("out.safetensors")
    torch.testing.assert_close(model(batch[-32:]), adapter.predict(batch[-32:]), atol=5e-3, rtol=0)


def test_folder_provides_its_newest_images_or_random_ones_of_classes(call, tmp_path):
    rng = np.random.default_rng(0)
    for folder in ("flat", "classes/cat", "classes/dog"):
        (tmp_path / folder).mkdir(parents=True)
        for index in range(4):
            pixels = rng.integers(0, 256, (40, 32, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / folder / f"{index}.png")
    for folder, count in (("flat", 3), ("classes", 6)):
        document = json.loads(
            call(WEIGHTS, "out.safetensors", "--calibrate", folder, "--images", count, "--json").stdout
        )
        assert document["images"] == count
        assert document["facts"]["statistics"] == "calibration"


@pytest.mark.parametrize(
    ("arguments", "kind", "word"),
    [
        ([WEIGHTS, "out.tflite"], UsageError, r"\.pt2"),
        (["adapter.pt", "out.pt2"], UsageError, "--network"),
        (["adapter.pt", "out.pt2", "--model", "resnet50_cifar"], UsageError, "not the state of"),
        (["adapter.pt", "out.pt2", "--model", "wrn_16_2"], UsageError, "another model"),
        (["adapter.pt", "out.pt2", "--model", WEIGHTS, "--state", "adapter.pt"], UsageError, "Omit --state"),
        ([WEIGHTS, "out.pt2", "--state", "missing.pt"], DataError, "missing.pt"),
        ([WEIGHTS, "out.pt2", "--calibrate", "embeded"], UsageError, "Did you mean 'embedded'"),
        ([WEIGHTS, "out.pt2", "--calibrate", "."], DataError, "contains no images"),
    ],
)
def test_invalid_use_is_an_error_and_writes_nothing(call, adapter, tmp_path, arguments, kind, word):
    with pytest.raises(kind, match=word):
        call(*arguments)
    assert [path.name for path in tmp_path.iterdir()] == ["adapter.pt"]
