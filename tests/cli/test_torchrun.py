"""``driftlaw run`` on two ranks, started as torchrun and Slurm do: with environment variables."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from driftlaw.cli import main, torchrun
from driftlaw.cli.console import RunProgress
from driftlaw.errors import RankError, UsageError
from driftlaw.records import read_record

RUN = ["run", "embedded", "--methods", "law", "--limit", "12", "--device", "cpu", "--checkpoint-seconds", "0"]
for setting in ("stream.batch_size=6", 'stream.corruptions=["fog","snow"]', "law.statistics=batch"):
    RUN += ["--set", setting]


def run_here(monkeypatch, out: Path) -> None:
    monkeypatch.setattr(sys, "argv", ["driftlaw", *RUN, "--out", str(out)])
    with pytest.raises(SystemExit):
        main()


def run_ranks(out: Path) -> list[tuple[int, str, str]]:
    """Return exit code, stdout and stderr of two ranks."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    command = [sys.executable, "-m", "driftlaw", *RUN, "--out", str(out), "--json"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    processes = [
        subprocess.Popen(
            command, env=os.environ | address | {"WORLD_SIZE": "2", "RANK": rank, "OMP_NUM_THREADS": "1"}, **pipes
        )
        for rank in "01"
    ]
    outputs = [process.communicate(timeout=300) for process in processes]
    return [(process.returncode, *output) for process, output in zip(processes, outputs, strict=True)]


def test_two_ranks_resume_a_run_of_one_process_and_end_with_its_record(tmp_path, monkeypatch):
    run_here(monkeypatch, tmp_path / "one")
    with monkeypatch.context() as patch:

        def stop(self, spec, done):
            if done == 2:
                raise KeyboardInterrupt

        patch.setattr(RunProgress, "stepped", stop)
        run_here(patch, tmp_path / "two")
    assert list((tmp_path / "two").glob("*.checkpoint.pt"))
    first, second = run_ranks(tmp_path / "two")
    assert [first[0], second[0]] == [0, 0], first[2] + second[2]
    assert '"mean_error"' in first[1]
    assert "resumed after 1 of 4 steps" in first[2]
    assert second[1:] == ("", "")
    one, two = (read_record(next((tmp_path / name).glob("*.jsonl"))) for name in ("one", "two"))
    assert two.finished
    assert two.batches[0] == one.batches[0] | {"timing": two.batches[0]["timing"]}
    for ours, expected in zip(two.batches, one.batches, strict=True):
        assert ours["images"] == expected["images"]
        assert ours["facts"]["entropy"] == pytest.approx(expected["facts"]["entropy"], abs=1e-2)  # float32
        assert ours["facts"]["layer_weights"] == pytest.approx(expected["facts"]["layer_weights"], abs=1e-2)


@pytest.fixture
def second_rank(monkeypatch):
    values = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torchrun, "PAUSE", 0.0)


def test_other_ranks_print_nothing(second_rank, capsys):
    with torchrun.hidden_output():
        print("output")
    assert capsys.readouterr().out == ""
    assert not torchrun.is_first_report(UsageError("the same on all ranks"))


def test_other_commands_do_not_run_on_several_ranks(second_rank):
    torchrun.check_command("run")
    with pytest.raises(UsageError, match="`driftlaw report` does not run on several ranks"):
        torchrun.check_command("report")


def test_one_rank_reports_an_error(second_rank, monkeypatch):
    class Store:
        def compare_set(self, key, expected, value):
            self.value = getattr(self, "value", value)
            return self.value.encode()

    store = Store()
    monkeypatch.setattr(torchrun, "_has_group", lambda: True)
    monkeypatch.setattr("torch.distributed.distributed_c10d._get_default_store", lambda: store)
    assert torchrun.is_first_report(UsageError("no images"))
    monkeypatch.setenv("RANK", "0")
    assert not torchrun.is_first_report(UsageError("no images"))
    assert not torchrun.is_first_report(RankError("rank 1 ended"))
    assert torchrun.is_first_report(UsageError("something else"))
