"""Checkpoints: round trip, damage, failed writes and SIGTERM."""

from __future__ import annotations

import os
import resource
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
    def send_two():
        with deferred_interrupts() as pending_interrupt:
            assert pending_interrupt() is None
            signal.raise_signal(signal.SIGTERM)
            assert isinstance(pending_interrupt(), SystemExit)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        send_two()


@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_a_signal_in_the_last_step_is_not_lost(number, error):
    done = []

    def finish():
        with deferred_interrupts():
            signal.raise_signal(number)
            done.append("the work is finished first")

    with pytest.raises(error) as raised:
        finish()
    assert done
    assert raised.value.args == (() if number == signal.SIGINT else (143,))


def test_a_full_disk_is_reported_and_keeps_the_previous_checkpoint(tmp_path):
    path = tmp_path / "one.pt"
    save_checkpoint({"step": 1}, path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
        with pytest.raises(DataError, match=rf"No space left on the disk of {tmp_path}.* Free some space"):
            save_checkpoint({"step": 2, "weight": torch.rand(50_000)}, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert load_checkpoint(path, CPU) == {"step": 1}
    assert os.listdir(tmp_path) == ["one.pt"]


@pytest.mark.parametrize("content", [[1, 2], torch.rand(3), "text"])
def test_a_file_without_a_dict_is_not_a_checkpoint(tmp_path, content):
    torch.save(content, tmp_path / "one.pt")
    with pytest.raises(DataError, match=r"one\.pt contains a .*, expected a dict\. Delete it"):
        load_checkpoint(tmp_path / "one.pt", CPU)


def test_a_pipe_is_not_read_as_a_checkpoint(tmp_path):
    os.mkfifo(tmp_path / "one.pt")
    with pytest.raises(DataError, match="is not a regular file"):
        load_checkpoint(tmp_path / "one.pt", CPU)


def test_signals_are_not_handled_in_other_threads():
    handler, pending = signal.getsignal(signal.SIGTERM), []

    def handle_in_thread():
        with deferred_interrupts() as pending_interrupt:
            pending.extend([pending_interrupt(), signal.getsignal(signal.SIGTERM)])

    thread = threading.Thread(target=handle_in_thread)
    thread.start()
    thread.join()
    assert pending == [None, handler]
