"""From an adapter to a file, and the file's answers."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from driftlaw.base import Adapter, StepOutput
from driftlaw.errors import DriftlawError, UsageError
from driftlaw.export import FORMATS, export_adapter, export_network
from driftlaw.methods import make_adapter
from driftlaw.models import load_model, weights_sha256
from tests.export.made_up import images, network


def adapted(method: str = "tent", steps: int = 2, **settings) -> Adapter:
    adapter = make_adapter(method, network(), settings)
    for seed in range(steps):
        adapter(images(8, seed))
    return adapter


def test_a_program_answers_as_the_adapter_on_its_calibration_batch_whatever_the_company(tmp_path):
    adapter, batch = adapted(), images(12)
    before = {name: value.clone() for name, value in adapter.model.state_dict().items()}
    done = export_adapter(adapter, tmp_path / "out.pt2", batch)
    program = torch.export.load(tmp_path / "out.pt2").module()
    expected = adapter.predict(batch)
    for count in (12, 1, 7):
        torch.testing.assert_close(program(batch[:count]), expected[:count], atol=1e-9, rtol=0)
    assert done.max_difference < 1e-9
    assert done.images == 12
    assert (done.folded, done.scaled) == (3, 4)
    assert not any("batch_norm" in str(node.target) for node in program.graph.nodes)
    assert all(torch.equal(value, before[name]) for name, value in adapter.model.state_dict().items())


def test_the_file_says_where_it_comes_from(tmp_path):
    done = export_adapter(adapted(), tmp_path / "out.pt2", images(6), facts={"calibration": "made up"})
    told = FORMATS[".pt2"].facts(tmp_path / "out.pt2")
    assert told == json.loads(json.dumps(done.facts))
    assert (told["method"], told["steps"], told["network"]) == ("tent", 2, "wrn_10_1")
    assert told["settings"]["learning_rate"] == 1e-3
    assert told["calibration"] == "made up"
    assert told["input"] == {"shape": ["batch", 3, 16, 16], "dtype": "float64", "range": [0, 1]}
    assert len(told["weights_sha256"]) == 64


def test_safetensors_load_as_any_weights_with_the_statistics_filled_in(tmp_path):
    adapter = adapted("norm")
    export_adapter(adapter, tmp_path / "out.safetensors", images(12))
    model = load_model(tmp_path / "out.safetensors", num_classes=4).double()
    torch.testing.assert_close(model(images(12)[:1]), adapter.predict(images(12))[:1], atol=1e-5, rtol=0)
    assert model.info["exported"]["method"] == "norm"
    assert not torch.equal(model.norm.running_mean, network().norm.running_mean.double())


def test_mixed_statistics_stay_mixed(tmp_path):
    adapter = adapted("norm", statistics="mixed", source_share=0.3)
    export_adapter(adapter, tmp_path / "out.safetensors", images(12))
    model = load_model(tmp_path / "out.safetensors").double()
    torch.testing.assert_close(model(images(12)), adapter.predict(images(12)), atol=1e-5, rtol=0)


def test_a_window_remembers_its_own_calibration_images(tmp_path):
    adapter = adapted("norm", statistics="window", window=8)
    done = export_adapter(adapter, tmp_path / "out.safetensors")
    assert done.images == 8
    model = load_model(tmp_path / "out.safetensors").double()
    torch.testing.assert_close(model(images(8, 1)), adapter.predict(images(8, 1)), atol=1e-5, rtol=0)


def test_without_images_there_are_no_statistics(tmp_path):
    with pytest.raises(UsageError, match="calibration images"):
        export_adapter(adapted(), tmp_path / "out.pt2")


def test_stored_statistics_are_the_sources(tmp_path):
    adapter = adapted("tent", statistics="mixed")
    done = export_adapter(adapter, tmp_path / "out.safetensors", images(6), statistics="stored")
    assert done.facts["statistics"] == "stored"
    model = load_model(tmp_path / "out.safetensors")
    assert torch.equal(model.norm.running_mean, network().norm.running_mean.float())
    assert torch.equal(model.norm.weight, adapter.model.norm.weight.float())


def test_an_adapter_with_statistics_of_its_own_keeps_them(tmp_path):
    adapter = adapted("adacontrast")
    done = export_adapter(adapter, tmp_path / "out.safetensors", images(6))
    assert done.facts["statistics"] == "own"
    model = load_model(tmp_path / "out.safetensors").double()
    torch.testing.assert_close(model(images(5, 9)), adapter.predict(images(5, 9)), atol=1e-5, rtol=0)


def test_a_network_alone_can_be_calibrated_or_not(tmp_path):
    model, batch = network(), images(12)
    export_network(model, tmp_path / "stored.safetensors", batch, statistics="stored")
    stored = load_model(tmp_path / "stored.safetensors")
    assert weights_sha256(stored) == weights_sha256(network().float())
    export_network(model, tmp_path / "calibrated.safetensors", batch)
    calibrated = load_model(tmp_path / "calibrated.safetensors").double()
    expected = make_adapter("norm", network(), {}).predict(batch)
    torch.testing.assert_close(calibrated(batch), expected, atol=1e-5, rtol=0)


class Twice(Adapter):
    """Answers with the sum of two networks."""

    name = "twice"  # of no method: what is registered would be tested as one

    def setup(self, train_data):
        self.other = network(seed=8)

    def update(self, images, plan):
        return StepOutput(self.forward_logits(images))

    def forward_logits(self, images):
        return self.model(images) + self.other(images)


def test_a_method_of_two_networks_becomes_one_program_but_no_weights(tmp_path):
    adapter = Twice(network())
    export_adapter(adapter, tmp_path / "out.pt2", images(6))
    program = torch.export.load(tmp_path / "out.pt2").module()
    torch.testing.assert_close(program(images(1)), adapter.predict(images(1)), atol=1e-9, rtol=0)
    with pytest.raises(UsageError, match=r"take \.pt2"):
        export_adapter(adapter, tmp_path / "out.safetensors", images(6))
    assert not (tmp_path / "out.safetensors").exists()


class Pair(nn.Module):
    """Somebody's own network, which answers a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 2)

    def forward(self, pixels):
        features = self.norm(self.conv(pixels)).mean(dim=(2, 3))
        return {"logits": self.head(features), "features": features}


def test_somebodys_own_network_answers_with_bare_logits(tmp_path):
    adapter = make_adapter("tent", Pair().double(), {})
    done = export_adapter(adapter, tmp_path / "out.pt2", images(6))
    assert done.folded == 1
    program = torch.export.load(tmp_path / "out.pt2").module()
    torch.testing.assert_close(program(images(6)), adapter.predict(images(6)), atol=1e-9, rtol=0)


@pytest.mark.parametrize(
    ("given", "word"),
    [
        (torch.zeros(2, 3, 8, 8, dtype=torch.uint8), "divide by 255"),
        (255 * torch.rand(2, 3, 8, 8), "divide by 255"),
        (torch.rand(3, 8, 8), "images\\[None\\]"),
    ],
)
def test_wrong_calibration_images_are_refused(tmp_path, given, word):
    with pytest.raises(UsageError, match=word):
        export_adapter(adapted(steps=0), tmp_path / "out.pt2", given)


def test_a_file_that_answers_otherwise_is_not_kept(tmp_path, monkeypatch):
    kind = type(FORMATS[".safetensors"])
    honest = kind.answer
    monkeypatch.setattr(kind, "answer", lambda self, path, given: honest(self, path, given) + 0.01)
    (tmp_path / "out.safetensors").write_text("older")
    with pytest.raises(DriftlawError, match="otherwise than the network") as told:
        export_adapter(adapted(steps=0), tmp_path / "out.safetensors", images(4))
    assert told.value.exit_code == 1
    assert (tmp_path / "out.safetensors").read_text() == "older"
    assert len(list(tmp_path.iterdir())) == 1
