"""The Lightning callback puts an adapter in for a test and takes it out again: with a stand-in, and the real one."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import pytest
import torch
from torch import nn

import driftlaw.lightning
from driftlaw.base import Adapter
from driftlaw.errors import UsageError
from driftlaw.testing.fixtures import make_images, tiny_model
from driftlaw.testing.snapshots import differences, model_state


class StandIn:
    """As much of Lightning's Callback as Python needs."""


@pytest.fixture(params=driftlaw.lightning.PACKAGES)
def callbacks(request, monkeypatch):
    """Return the module as it is where Lightning, under either name, is installed."""
    names = [*driftlaw.lightning.PACKAGES, "lightning"]
    for name in names:
        monkeypatch.setitem(sys.modules, name, None)  # makes an import of it fail
    fake = ModuleType(request.param)
    fake.Callback = StandIn
    monkeypatch.setitem(sys.modules, "lightning", ModuleType("lightning"))
    monkeypatch.setitem(sys.modules, request.param, fake)
    yield importlib.reload(driftlaw.lightning)
    monkeypatch.undo()
    importlib.reload(driftlaw.lightning)


class Classifier(nn.Module):
    """As much of a LightningModule as the callback sees."""

    def __init__(self, **networks):
        super().__init__()
        self.error = nn.Identity()  # a metric: no parameters
        for name, network in networks.items():
            setattr(self, name, network)


@pytest.mark.parametrize("stage", ["test", "predict"])
def test_the_network_adapts_for_the_stage_and_is_the_one_it_was_afterwards(callbacks, stage):
    module = Classifier(backbone=tiny_model())
    network, before = module.backbone, model_state(module)
    callback = callbacks.AdaptWhileTesting("tent", learning_rate=0.01, seed=3)
    assert isinstance(callback, StandIn)
    getattr(callback, f"on_{stage}_start")(None, module)
    module.eval()
    with torch.inference_mode():
        module.backbone(make_images())
    assert isinstance(module.backbone, Adapter)
    assert (callback.adapter.steps, callback.adapter.config.learning_rate, callback.adapter.seed) == (1, 0.01, 3)
    getattr(callback, f"on_{stage}_end")(None, module)
    assert module.backbone is network
    module.train()
    assert differences(before, model_state(module)) == []
    assert [name for name, _ in module.named_children()] == ["error", "backbone"]


def test_after_an_exception_the_network_is_the_one_it_was(callbacks):
    module = Classifier(backbone=tiny_model())
    network = module.backbone
    callback = callbacks.AdaptWhileTesting()
    callback.on_test_start(None, module)
    callback.on_exception(None, module, RuntimeError("stopped"))
    assert module.backbone is network
    callback.on_test_end(None, module)
    assert module.backbone is network


def test_several_networks_are_told_apart_by_name(callbacks):
    module = Classifier(student=tiny_model(), teacher=tiny_model())
    with pytest.raises(UsageError, match=r"holds 2 networks with parameters \(student, teacher\): .* network="):
        callbacks.AdaptWhileTesting().on_test_start(None, module)
    with pytest.raises(UsageError, match="no network «pupil»; its networks: error, student, teacher"):
        callbacks.AdaptWhileTesting(network="pupil").on_test_start(None, module)
    callbacks.AdaptWhileTesting(network="student").on_test_start(None, module)
    assert isinstance(module.student, Adapter)
    assert not isinstance(module.teacher, Adapter)


def test_presets_set_it_up_and_wrong_names_are_told(callbacks):
    callback = callbacks.AdaptWhileTesting("law", preset="cifar10-c", tau=0.6)
    assert callback.settings["consistency_weight"] == 0.1
    assert callback.settings["tau"] == 0.6
    with pytest.raises(UsageError, match="Did you mean 'tent'"):
        callbacks.AdaptWhileTesting("tentt").on_test_start(None, Classifier(backbone=tiny_model()))


def test_without_lightning_it_says_what_to_install(monkeypatch):
    for name in [*driftlaw.lightning.PACKAGES, "lightning"]:
        monkeypatch.setitem(sys.modules, name, None)
    module = importlib.reload(driftlaw.lightning)
    with pytest.raises(UsageError, match="needs Lightning: pip install lightning"):
        module.AdaptWhileTesting()
    monkeypatch.undo()
    importlib.reload(driftlaw.lightning)


def test_a_real_trainer_tests_with_it(tmp_path):
    if driftlaw.lightning.NO_LIGHTNING:
        pytest.skip(driftlaw.lightning.NO_LIGHTNING)
    package = next(name for name in driftlaw.lightning.PACKAGES if name in sys.modules)
    pl = importlib.import_module(package)

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.network = tiny_model()

        def test_step(self, batch, index):
            self.network(batch)

        def predict_step(self, batch, index):
            return self.network(batch)

    module, callback = Module(), driftlaw.lightning.AdaptWhileTesting("tent")
    network, before = module.network, model_state(module.network)["values"]
    trainer = pl.Trainer(
        callbacks=[callback], logger=False, enable_checkpointing=False, enable_progress_bar=False, accelerator="cpu",
        default_root_dir=tmp_path,
    )  # fmt: skip
    batches = [make_images(number) for number in range(3)]
    trainer.test(module, torch.utils.data.DataLoader(batches, batch_size=None), verbose=False)
    assert callback.adapter.steps == 3
    answers = trainer.predict(module, torch.utils.data.DataLoader(batches, batch_size=None))
    expected = driftlaw.adapt(network, "tent")
    assert differences([expected(images) for images in batches], [answer.clone() for answer in answers]) == []
    assert module.network is network
    assert differences(before, model_state(network)["values"]) == []
