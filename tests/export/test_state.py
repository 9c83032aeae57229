"""Adapters from saved states."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from driftlaw.datasets import ArrayImages
from driftlaw.errors import DataError, UsageError
from driftlaw.export import read_state, restore_adapter
from driftlaw.methods import make_adapter
from tests.export.small_model import images, small_model


def saved(adapter, path):
    torch.save(adapter.state_dict(), path)
    return path


@pytest.mark.parametrize("method", ["source", "norm", "tent", "adacontrast"])
def test_restored_adapter_returns_the_same_logits(method, tmp_path):
    adapter = make_adapter(method, small_model(), {})
    for seed in range(2):
        adapter(images(6, seed))
    restored = restore_adapter(small_model(seed=1), read_state(saved(adapter, tmp_path / "state.pt")))
    torch.testing.assert_close(restored.predict(images(6)), adapter.predict(images(6)))
    assert restored.steps == 2
    assert restored.name == method


def test_settings_are_restored_except_those_of_execution(tmp_path, recwarn):
    adapter = make_adapter("norm", small_model(), {"statistics": "mixed", "source_share": 0.25, "channels_last": "off"})
    restored = restore_adapter(small_model(), read_state(saved(adapter, tmp_path / "state.pt")))
    assert restored.config.source_share == 0.25
    torch.testing.assert_close(restored.predict(images(6)), adapter.predict(images(6)))
    assert not [warning for warning in recwarn if "other settings" in str(warning.message)]


def test_training_data_is_not_needed(tmp_path):
    rng = np.random.default_rng(0)
    pixels, labels = rng.integers(0, 256, (8, 16, 16, 3), dtype=np.uint8), np.arange(8) % 4
    train_data = ArrayImages("synthetic", pixels, labels, list("abcd"), {})
    settings = {"source_free": True, "projector_size": 4}
    adapter = make_adapter("rmt", small_model(), settings, train_data=train_data)
    adapter(images(6))
    restored = restore_adapter(small_model(), read_state(saved(adapter, tmp_path / "state.pt")))
    torch.testing.assert_close(restored.predict(images(6)), adapter.predict(images(6)))


def test_checkpoint_of_an_unfinished_run_is_accepted(tmp_path):
    adapter = make_adapter("tent", small_model(), {})
    torch.save({"batches": 3, "adapter": adapter.state_dict()}, tmp_path / "run.checkpoint.pt")
    assert read_state(tmp_path / "run.checkpoint.pt")["_extra_state"]["method"] == "tent"


def test_other_files_are_rejected(tmp_path):
    torch.save(small_model().state_dict(), tmp_path / "weights.pt")
    (tmp_path / "text.pt").write_text("no torch file")
    for name in ("weights.pt", "text.pt"):
        with pytest.raises(DataError, match=r"adapter\.state_dict"):
            read_state(tmp_path / name)


def test_unknown_methods_and_other_models_are_rejected():
    state = make_adapter("tent", small_model(), {}).state_dict()
    with pytest.raises(UsageError, match="belongs to another model and does not fit"):
        restore_adapter(torch.nn.Sequential(torch.nn.BatchNorm2d(3), torch.nn.Linear(1, 4)), state)
    state["_extra_state"] = {**state["_extra_state"], "method": "tentt"}
    with pytest.raises(UsageError, match="Did you mean 'tent'"):
        restore_adapter(small_model(), state)
    with pytest.raises(UsageError, match="has no method"):
        restore_adapter(small_model(), {})
