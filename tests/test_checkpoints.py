"""Checkpoints: back as they were, refused when damaged."""

from __future__ import annotations

import pytest
import torch

from driftlaw.checkpoints import load_checkpoint, save_checkpoint
from driftlaw.errors import DataError

CPU = torch.device("cpu")


def test_what_was_saved_comes_back(tmp_path):
    save_checkpoint({"batches": 3, "adapter": {"weight": torch.arange(4.0)}}, tmp_path / "one.pt")
    state = load_checkpoint(tmp_path / "one.pt", CPU)
    assert state["batches"] == 3
    assert torch.equal(state["adapter"]["weight"], torch.arange(4.0))


def test_a_damaged_one_is_told_by_name(tmp_path):
    save_checkpoint({"weight": torch.rand(100)}, tmp_path / "one.pt")
    whole = (tmp_path / "one.pt").read_bytes()
    (tmp_path / "one.pt").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"one\.pt is damaged"):
        load_checkpoint(tmp_path / "one.pt", CPU)


def test_a_failed_save_leaves_the_older_one(tmp_path):
    save_checkpoint({"step": 1}, tmp_path / "one.pt")
    with pytest.raises(AttributeError):
        save_checkpoint({"step": lambda: 2}, tmp_path / "one.pt")
    assert load_checkpoint(tmp_path / "one.pt", CPU) == {"step": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["one.pt"]
