"""Lightning callback: replaces the model of a module by an adapter and restores it. The last test needs Lightning."""

from __future__ import annotations

import importlib
import sys

import pytest
import torch
from torch import nn

import driftlaw.lightning
from driftlaw.base import Adapter
from driftlaw.errors import UsageError
from driftlaw.lightning import AdaptWhileTesting
from driftlaw.testing.fixtures import SyntheticDataset, make_images, tiny_model
from driftlaw.testing.snapshots import differences, model_state


@pytest.fixture
def without_trainer(monkeypatch):
    """Allow callbacks without Lightning, because these tests call the hooks themselves."""
    monkeypatch.setattr(driftlaw.lightning, "IMPORT_ERROR", "")


class Classifier(nn.Module):
    """Module with a metric and the given models, as the callback sees a LightningModule."""

    def __init__(self, **models):
        super().__init__()
        self.error = nn.Identity()  # a metric: no parameters
        for name, model in models.items():
            setattr(self, name, model)


@pytest.mark.parametrize("stage", ["test", "predict"])
def test_the_model_adapts_during_the_stage_and_is_restored_afterwards(without_trainer, stage):
    module = Classifier(backbone=tiny_model())
    model, before = module.backbone, model_state(module)
    callback = AdaptWhileTesting("tent", learning_rate=0.01, seed=3)
    getattr(callback, f"on_{stage}_start")(None, module)
    module.eval()
    with torch.inference_mode():
        module.backbone(make_images())
    assert isinstance(module.backbone, Adapter)
    assert (callback.adapter.steps, callback.adapter.config.learning_rate, callback.adapter.seed) == (1, 0.01, 3)
    getattr(callback, f"on_{stage}_end")(None, module)
    assert module.backbone is model
    module.train()
    assert differences(before, model_state(module)) == []
    assert [name for name, _ in module.named_children()] == ["error", "backbone"]


def test_the_model_is_restored_after_an_exception(without_trainer):
    module = Classifier(backbone=tiny_model())
    model = module.backbone
    callback = AdaptWhileTesting()
    callback.on_test_start(None, module)
    callback.on_exception(None, module, RuntimeError("stopped"))
    assert module.backbone is model
    callback.on_test_end(None, module)
    assert module.backbone is model


def test_one_of_several_models_is_chosen_by_name(without_trainer):
    module = Classifier(student=tiny_model(), teacher=tiny_model())
    with pytest.raises(UsageError, match=r"has 2 attributes with parameters \(student, teacher\).*network="):
        AdaptWhileTesting().on_test_start(None, module)
    with pytest.raises(UsageError, match=r"no model 'pupil'\. Its modules: error, student, teacher"):
        AdaptWhileTesting(network="pupil").on_test_start(None, module)
    AdaptWhileTesting(network="student").on_test_start(None, module)
    assert isinstance(module.student, Adapter)
    assert not isinstance(module.teacher, Adapter)


def test_settings_of_a_preset_are_used_and_overridden(without_trainer):
    callback = AdaptWhileTesting("law", preset="cifar10-c", tau=0.6)
    assert callback.settings["consistency_weight"] == 0.1
    assert callback.settings["tau"] == 0.6
    with pytest.raises(UsageError, match="Did you mean 'tent'"):
        AdaptWhileTesting("tentt").on_test_start(None, Classifier(backbone=tiny_model()))


def test_training_data_reaches_the_method_also_under_its_old_keyword(without_trainer):
    with pytest.warns(DeprecationWarning, match="train_data"):
        callbacks = [AdaptWhileTesting("rmt", source=SyntheticDataset())]
    callbacks.append(AdaptWhileTesting("rmt", train_data=SyntheticDataset()))
    for callback in callbacks:
        callback.on_test_start(None, Classifier(backbone=tiny_model()))
        assert len(callback.adapter.train_data) == len(SyntheticDataset())


def test_without_lightning_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(driftlaw.lightning, "PACKAGES", ("no_such_package",))
    base, reason = driftlaw.lightning._import_callback()
    assert base is object
    assert reason == "no_such_package: No module named 'no_such_package'"
    monkeypatch.setattr(driftlaw.lightning, "IMPORT_ERROR", reason)
    with pytest.raises(UsageError, match=r"needs Lightning \(no_such_package.*pip install lightning"):
        AdaptWhileTesting()


def test_a_real_trainer_tests_and_predicts(tmp_path):
    if driftlaw.lightning.IMPORT_ERROR:
        pytest.skip(driftlaw.lightning.IMPORT_ERROR)
    package = next(name for name in driftlaw.lightning.PACKAGES if name in sys.modules)
    pl = importlib.import_module(package)

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = tiny_model()

        def test_step(self, batch, index):
            self.model(batch)

        def predict_step(self, batch, index):
            return self.model(batch)

    module, callback = Module(), AdaptWhileTesting("tent")
    model, before = module.model, model_state(module.model)["values"]
    trainer = pl.Trainer(
        callbacks=[callback], logger=False, enable_checkpointing=False, enable_progress_bar=False, accelerator="cpu",
        default_root_dir=tmp_path,
    )  # fmt: skip
    batches = [make_images(number) for number in range(3)]
    trainer.test(module, torch.utils.data.DataLoader(batches, batch_size=None), verbose=False)
    assert callback.adapter.steps == 3
    logits = trainer.predict(module, torch.utils.data.DataLoader(batches, batch_size=None))
    expected = driftlaw.adapt(model, "tent")
    assert differences([expected(images) for images in batches], [each.clone() for each in logits]) == []
    assert module.model is model
    assert differences(before, model_state(model)["values"]) == []
