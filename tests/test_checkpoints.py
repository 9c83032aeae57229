"""Checkpoints: round trip, damage, failed writes and SIGTERM."""

from __future__ import annotations

import signal
import threading

import pytest
import torch

from driftlaw.checkpoints import load_checkpoint, save_checkpoint, sigterm_raises_exit
from driftlaw.errors import DataError

CPU = torch.device("cpu")


def test_a_checkpoint_is_read_as_it_was_written(tmp_path):
    save_checkpoint({"batches": 3, "adapter": {"weight": torch.arange(4.0)}}, tmp_path / "one.pt")
    state = load_checkpoint(tmp_path / "one.pt", CPU)
    assert state["batches"] == 3
    assert torch.equal(state["adapter"]["weight"], torch.arange(4.0))


def test_a_damaged_checkpoint_is_reported_by_name(tmp_path):
    save_checkpoint({"weight": torch.rand(100)}, tmp_path / "one.pt")
    content = (tmp_path / "one.pt").read_bytes()
    (tmp_path / "one.pt").write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=r"one\.pt is damaged"):
        load_checkpoint(tmp_path / "one.pt", CPU)


def test_a_failed_write_keeps_the_previous_checkpoint(tmp_path):
    save_checkpoint({"step": 1}, tmp_path / "one.pt")
    with pytest.raises(AttributeError):
        save_checkpoint({"step": lambda: 2}, tmp_path / "one.pt")
    assert load_checkpoint(tmp_path / "one.pt", CPU) == {"step": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["one.pt"]


def test_sigterm_raises_exit_in_the_main_thread_only():
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit, match="143"), sigterm_raises_exit():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is handler
    with sigterm_raises_exit():
        installed = signal.getsignal(signal.SIGTERM)
        thread = threading.Thread(target=lambda: sigterm_raises_exit().__enter__())
        thread.start()
        thread.join()
        assert signal.getsignal(signal.SIGTERM) is installed
