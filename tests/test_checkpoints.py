"""Checkpoints: round trip, damage, failed writes and SIGTERM."""

from __future__ import annotations

import signal
import threading

import pytest
import torch

from driftlaw.checkpoints import deferred_interrupts, load_checkpoint, save_checkpoint
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


def test_a_second_signal_is_not_deferred():
    with deferred_interrupts() as pending_interrupt:
        assert pending_interrupt() is None
        signal.raise_signal(signal.SIGTERM)
        assert isinstance(pending_interrupt(), SystemExit)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_signals_are_not_handled_in_other_threads():
    handler, pending = signal.getsignal(signal.SIGTERM), []

    def handle_in_thread():
        with deferred_interrupts() as pending_interrupt:
            pending.extend([pending_interrupt(), signal.getsignal(signal.SIGTERM)])

    thread = threading.Thread(target=handle_in_thread)
    thread.start()
    thread.join()
    assert pending == [None, handler]
