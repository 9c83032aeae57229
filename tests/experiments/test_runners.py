"""Runners: a failed or killed run does not affect the others."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from concurrent.futures import Future

import pytest
import torch

from driftlaw.experiments import RunOptions, runners
from driftlaw.experiments.runners import ProcessRunner, run_all
from driftlaw.records import read_record
from tests.experiments.tiny import report_and_wait, tiny_spec, tiny_weights


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    return tiny_weights(tmp_path_factory.mktemp("weights") / "tiny.safetensors")


@pytest.fixture
def _fast_workers(monkeypatch):
    """Fork workers from a process that has imported torch once. Another test starts them as a user's program does."""
    if sys.platform != "linux":
        return  # libraries of macOS do not work in forked processes
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.experiments.tiny", "torch._dynamo"])
    monkeypatch.setattr(multiprocessing, "get_context", lambda method: context)


class Listener:
    """Stores what it receives, by seed."""

    def __init__(self):
        self.steps, self.done, self.results = {}, {}, []

    def started(self, spec, steps):
        self.steps[spec.seed] = steps

    def stepped(self, spec, done):
        self.done[spec.seed] = done

    def ended(self, result):
        self.results.append(result)


class SendSignal(Listener):
    """Sends a signal when the run with seed 1 starts; its number of steps is the process id of the worker."""

    def __init__(self, number, process_id=None):
        super().__init__()
        self.number, self.process_id = number, process_id

    def started(self, spec, steps):
        super().started(spec, steps)
        if spec.seed == 1:
            os.kill(self.process_id or steps, self.number)


def test_serial_runs_continue_after_an_error(weights, tmp_path):
    specs = [tiny_spec(weights, seed=1), tiny_spec(weights, seed=2, settings={"tau": 1}), tiny_spec(weights, seed=3)]
    listener = Listener()
    results = run_all(specs, RunOptions(tmp_path, compress=True, command="driftlaw test"), listener)
    assert results == listener.results
    assert [bool(result.problem) for result in results] == [False, True, False]
    assert "Unknown setting 'tau'" in results[1].problem
    assert results[0].record == specs[0].record_candidates(tmp_path)[1]
    assert read_record(results[0].record).header["command"] == "driftlaw test"
    assert (listener.steps, listener.done) == ({1: 4, 3: 4}, {1: 4, 3: 4})


def test_submit_returns_a_future_of_the_result(weights, tmp_path):
    spec, listener = tiny_spec(weights), Listener()
    with ProcessRunner(1, listener) as runner:
        future = runner.submit(spec, RunOptions(tmp_path))
        assert isinstance(future, Future)
        assert future.result().record == spec.record_path(tmp_path)
    assert (listener.steps, listener.done, len(listener.results)) == ({1: 4}, {1: 4}, 1)


@pytest.mark.usefixtures("_fast_workers")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_worker_is_reported_and_the_other_runs_continue(weights, tmp_path, monkeypatch, number):
    monkeypatch.setattr(runners, "_work", report_and_wait)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    specs = [tiny_spec(weights, seed=seed) for seed in (1, 2, 3)]
    listener = SendSignal(number)
    first, *others = run_all(specs, RunOptions(tmp_path), listener, jobs=2)
    assert first.problem == (
        f"The worker process was terminated ({number.name}). Run the same command again to resume its last checkpoint."
    )
    for result in others:
        record = read_record(result.record)
        assert record.finished
        assert record.header["device"]["threads"] == 1
        assert listener.done[result.spec.seed] == listener.steps[result.spec.seed] == 4
    assert len(listener.results) == 3
    assert not multiprocessing.active_children()


@pytest.mark.usefixtures("_fast_workers")
@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_an_interrupt_stops_the_workers(weights, tmp_path, monkeypatch, number, error):
    monkeypatch.setattr(runners, "_work", report_and_wait)
    listener = SendSignal(number, os.getpid())
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # as the command line does
    try:
        with pytest.raises(error):
            run_all([tiny_spec(weights)], RunOptions(tmp_path), listener, jobs=2)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert listener.results == []
    assert not multiprocessing.active_children()


@pytest.mark.parametrize(("jobs", "threads"), [(2, 3), (10_000, 1)])
def test_jobs_share_the_threads_and_each_has_at_least_one(monkeypatch, jobs, threads):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    assert ProcessRunner(jobs, Listener())._cpu_threads == threads
