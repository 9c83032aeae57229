"""Export of adapters and models, and the logits of the files."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch
from torch import nn

import driftlaw
from driftlaw.base import Adapter, StepOutput
from driftlaw.errors import DriftlawError, UsageError
from driftlaw.export import FORMATS, export_adapter, export_model, restore_adapter
from driftlaw.methods import make_adapter
from driftlaw.models import load_model, weights_sha256
from driftlaw.testing.fixtures import SyntheticDataset
from tests.export.small_model import images, small_model


def adapted(method: str = "tent", steps: int = 2, **settings) -> Adapter:
    adapter = make_adapter(method, small_model(), settings)
    for seed in range(steps):
        adapter(images(8, seed))
    return adapter


def test_program_returns_the_adapters_logits_for_any_batch_size(tmp_path):
    adapter, batch = adapted(), images(12)
    before = {name: value.clone() for name, value in adapter.model.state_dict().items()}
    result = export_adapter(adapter, tmp_path / "out.pt2", batch)
    program = torch.export.load(tmp_path / "out.pt2").module()
    expected = adapter.predict(batch)
    for count in (12, 1, 7):
        torch.testing.assert_close(program(batch[:count]), expected[:count], atol=1e-9, rtol=0)
    assert result.max_difference < 1e-9
    assert result.images == 12
    assert (result.folded, result.scaled) == (3, 4)
    assert not any("batch_norm" in str(node.target) for node in program.graph.nodes)
    assert all(torch.equal(value, before[name]) for name, value in adapter.model.state_dict().items())


def test_file_contains_metadata(tmp_path):
    result = export_adapter(adapted(), tmp_path / "out.pt2", images(6), metadata={"calibration": "made up"})
    files = {"driftlaw.json": ""}
    torch.export.load(tmp_path / "out.pt2", extra_files=files)
    metadata = json.loads(files["driftlaw.json"])
    assert metadata == json.loads(json.dumps(result.metadata))
    assert (metadata["method"], metadata["steps"], metadata["network"]) == ("tent", 2, "wrn_10_1")
    assert metadata["settings"]["learning_rate"] == 1e-3
    assert metadata["calibration"] == "made up"
    assert metadata["input"] == {"shape": ["batch", 3, 16, 16], "dtype": "float64", "range": [0, 1]}
    assert len(metadata["weights_sha256"]) == 64


def test_safetensors_contain_the_calibrated_statistics(tmp_path):
    adapter = adapted("norm")
    export_adapter(adapter, tmp_path / "out.safetensors", images(12))
    model = load_model(tmp_path / "out.safetensors", num_classes=4).double()
    torch.testing.assert_close(model(images(12)[:1]), adapter.predict(images(12))[:1], atol=1e-5, rtol=0)
    assert model.info["exported"]["method"] == "norm"
    assert not torch.equal(model.norm.running_mean, small_model().norm.running_mean.double())


def test_mixed_statistics_are_exported(tmp_path):
    adapter = adapted("norm", statistics="mixed", source_share=0.3)
    export_adapter(adapter, tmp_path / "out.safetensors", images(12))
    model = load_model(tmp_path / "out.safetensors").double()
    torch.testing.assert_close(model(images(12)), adapter.predict(images(12)), atol=1e-5, rtol=0)


def test_window_provides_calibration_images(tmp_path):
    adapter = adapted("norm", statistics="window", window=8)
    result = export_adapter(adapter, tmp_path / "out.safetensors")
    assert result.images == 8
    model = load_model(tmp_path / "out.safetensors").double()
    torch.testing.assert_close(model(images(8, 1)), adapter.predict(images(8, 1)), atol=1e-5, rtol=0)


def test_missing_calibration_images_are_an_error(tmp_path):
    with pytest.raises(UsageError, match="Pass calibration_images"):
        export_adapter(adapted(statistics="batch"), tmp_path / "out.pt2")


def test_stored_statistics_are_those_of_the_source_model(tmp_path):
    adapter = adapted("tent", statistics="mixed")
    result = export_adapter(adapter, tmp_path / "out.safetensors", images(6), statistics="stored")
    assert result.metadata["statistics"] == "stored"
    model = load_model(tmp_path / "out.safetensors")
    assert torch.equal(model.norm.running_mean, small_model().norm.running_mean.float())
    assert torch.equal(model.norm.weight, adapter.model.norm.weight.float())


def test_own_statistics_of_a_method_are_kept(tmp_path):
    adapter = adapted("adacontrast")
    result = export_adapter(adapter, tmp_path / "out.safetensors", images(6))
    assert result.metadata["statistics"] == "own"
    model = load_model(tmp_path / "out.safetensors").double()
    torch.testing.assert_close(model(images(5, 9)), adapter.predict(images(5, 9)), atol=1e-5, rtol=0)


def test_model_can_be_exported_with_and_without_calibration(tmp_path):
    model, batch = small_model(), images(12)
    export_model(model, tmp_path / "stored.safetensors", batch, statistics="stored")
    stored = load_model(tmp_path / "stored.safetensors")
    assert weights_sha256(stored) == weights_sha256(small_model().float())
    export_model(model, tmp_path / "calibrated.safetensors", batch)
    calibrated = load_model(tmp_path / "calibrated.safetensors").double()
    expected = make_adapter("norm", small_model(), {}).predict(batch)
    torch.testing.assert_close(calibrated(batch), expected, atol=1e-5, rtol=0)


class SumOfTwo(Adapter):
    """Predicts with the sum of two models."""

    name = "sum-of-two"  # not registered: registered methods are tested for conformance

    def setup(self, train_data):
        self.other = small_model(seed=8)

    def update(self, images, plan):
        return StepOutput(self.forward_logits(images))

    def forward_logits(self, images):
        return self.model(images) + self.other(images)


def test_method_with_two_models_can_be_a_program_but_not_weights(tmp_path):
    adapter = SumOfTwo(small_model())
    export_adapter(adapter, tmp_path / "out.pt2", images(6))
    program = torch.export.load(tmp_path / "out.pt2").module()
    torch.testing.assert_close(program(images(1)), adapter.predict(images(1)), atol=1e-9, rtol=0)
    with pytest.raises(UsageError, match=r"Use \.pt2"):
        export_adapter(adapter, tmp_path / "out.safetensors", images(6))
    assert not (tmp_path / "out.safetensors").exists()


class ReturnsDict(nn.Module):
    """A user's model that returns a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 2)

    def forward(self, pixels):
        features = self.norm(self.conv(pixels)).mean(dim=(2, 3))
        return {"logits": self.head(features), "features": features}


def test_model_that_returns_a_dict_is_exported_with_plain_logits(tmp_path):
    adapter = make_adapter("tent", ReturnsDict().double(), {})
    result = export_adapter(adapter, tmp_path / "out.pt2", images(6))
    assert result.folded == 1
    program = torch.export.load(tmp_path / "out.pt2").module()
    torch.testing.assert_close(program(images(6)), adapter.predict(images(6)), atol=1e-9, rtol=0)


@pytest.mark.parametrize("method", ["tent", "rmt"])
@pytest.mark.parametrize("kind", ["unit", "normalized"])
def test_a_file_accepts_what_the_adapter_accepts(tmp_path, method, kind):
    mean, std = torch.tensor([0.5, 0.4, 0.3]).view(3, 1, 1), torch.tensor([0.2, 0.3, 0.25]).view(3, 1, 1)
    settings = {"source_free": True, "projector_size": 4} if method == "rmt" else {}  # rmt has two models
    data = SyntheticDataset()
    adapter = driftlaw.adapt(small_model(), method, mean=mean, std=std, inputs=kind, train_data=data, **settings)
    batch = images(8) if kind == "unit" else (images(8) - mean) / std
    adapter(batch)
    result = export_adapter(adapter, tmp_path / "out.pt2", batch)
    program = torch.export.load(tmp_path / "out.pt2").module()
    torch.testing.assert_close(program(batch), adapter.predict(batch), atol=1e-9, rtol=0)
    assert (result.metadata["input"].get("range") == [0, 1]) == (kind == "unit")
    assert result.metadata["input"].get("mean") == (None if kind == "unit" else [0.5, 0.4, 0.3])
    if kind == "unit":
        with pytest.raises(UsageError, match="cannot store the normalisation"):
            export_adapter(driftlaw.adapt(small_model(), mean=mean, std=std, inputs=kind), "out.safetensors", batch)
    restored = restore_adapter(small_model(), adapter.state_dict())
    torch.testing.assert_close(restored.predict(batch), adapter.predict(batch))


@pytest.mark.parametrize(
    ("given", "word"),
    [
        (255 * torch.rand(2, 3, 8, 8), "divide by 255"),
        (torch.rand(3, 8, 8), r"images.unsqueeze\(0\)"),
    ],
)
def test_invalid_calibration_images_are_rejected(tmp_path, given, word):
    with pytest.raises(UsageError, match=word):
        export_adapter(adapted(steps=0), tmp_path / "out.pt2", given)


def test_file_with_different_logits_is_deleted(tmp_path, monkeypatch):
    original = FORMATS[".safetensors"]
    inexact = dataclasses.replace(original, run=lambda path, given: original.run(path, given) + 0.01)
    monkeypatch.setitem(FORMATS, ".safetensors", inexact)
    (tmp_path / "out.safetensors").write_text("older")
    with pytest.raises(DriftlawError, match="differ from the model") as caught:
        export_adapter(adapted(steps=0), tmp_path / "out.safetensors", images(4))
    assert caught.value.exit_code == 1
    assert (tmp_path / "out.safetensors").read_text() == "older"
    assert len(list(tmp_path.iterdir())) == 1
