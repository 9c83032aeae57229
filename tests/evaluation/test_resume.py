"""Resuming: an interrupted run ends with the same record as an uninterrupted one."""

from __future__ import annotations

import signal
import threading

import pytest

import driftlaw
from driftlaw.errors import UsageError
from driftlaw.evaluation import METRICS, run
from driftlaw.testing.fixtures import SyntheticDataset
from tests.evaluation.noise_stream import NoiseStream, lines_without_timing


class Killed(BaseException):
    """Plays a kill: the evaluator does not handle it, so nothing is saved."""


def kill_after(batches: int):
    def progress(line: dict) -> None:
        if line["batch"] + 1 == batches:
            raise Killed

    return progress


@pytest.mark.parametrize("method", ["source", "norm", "tent", "law"])
@pytest.mark.parametrize("killed_after", [1, 3, 6])
@pytest.mark.parametrize("checkpoint_seconds", [0.0, 1e9])
def test_a_killed_run_ends_with_the_same_bytes(model, tmp_path, method, killed_after, checkpoint_seconds):
    complete, resumed = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    run(NoiseStream(), driftlaw.adapt(model, method, seed=2), record=complete)
    options = {"record": resumed, "checkpoint_seconds": checkpoint_seconds}
    with pytest.raises(Killed):
        run(NoiseStream(), driftlaw.adapt(model, method, seed=2), **options, progress=kill_after(killed_after))
    with resumed.open("ab") as file:
        file.write(b'{"batch":99,"incomplete')
    run(NoiseStream(), driftlaw.adapt(model, method, seed=2), **options)
    assert lines_without_timing(resumed) == lines_without_timing(complete)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "b.jsonl"]


@pytest.mark.parametrize("killed_after", [1, 4])
@pytest.mark.parametrize("method", ["rmt", "gtta"])
def test_a_killed_run_with_training_data_ends_with_the_same_bytes(model, tmp_path, method, killed_after):
    def adapter():
        return driftlaw.adapt(model, method, train_data=SyntheticDataset())

    complete, resumed = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    header = run(NoiseStream(), adapter(), record=complete).header
    assert header["source"] == SyntheticDataset().metadata()
    with pytest.raises(Killed):
        run(NoiseStream(), adapter(), record=resumed, checkpoint_seconds=0, progress=kill_after(killed_after))
    run(NoiseStream(), adapter(), record=resumed)
    assert lines_without_timing(resumed) == lines_without_timing(complete)


@pytest.mark.parametrize("killed_after", [1, 2, 5])
def test_a_killed_run_with_metrics_ends_with_the_same_bytes(model, tmp_path, killed_after):
    complete, resumed = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    options = {"metrics": METRICS, "checkpoint_seconds": 0}
    run(NoiseStream(), driftlaw.adapt(model), record=complete, **options)
    with pytest.raises(Killed):
        run(NoiseStream(), driftlaw.adapt(model), record=resumed, **options, progress=kill_after(killed_after))
    run(NoiseStream(), driftlaw.adapt(model), record=resumed, **options)
    assert lines_without_timing(resumed) == lines_without_timing(complete)


def test_a_resumed_run_starts_at_its_checkpoint(model, tmp_path):
    path, batches = tmp_path / "one.jsonl", []
    with pytest.raises(Killed):
        run(NoiseStream(), driftlaw.adapt(model), record=path, checkpoint_seconds=0, progress=kill_after(5))
    run(NoiseStream(), driftlaw.adapt(model), record=path, progress=lambda line: batches.append(line["batch"]))
    assert batches == [4, 5]  # the last checkpoint before the kill was written after batch 3


@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_a_signal_ends_the_batch_and_saves(model, tmp_path, number, error):
    complete, path, batches = tmp_path / "a.jsonl", tmp_path / "b.jsonl", []
    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    run(NoiseStream(), driftlaw.adapt(model, "tent"), record=complete)

    def interrupt(line: dict) -> None:
        if line["batch"] == 2:
            signal.raise_signal(number)

    with pytest.raises(error) as raised:
        run(NoiseStream(), driftlaw.adapt(model, "tent"), record=path, progress=interrupt)
    assert raised.value.args == (() if number == signal.SIGINT else (143,))
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == handlers
    run(NoiseStream(), driftlaw.adapt(model, "tent"), record=path, progress=lambda line: batches.append(line["batch"]))
    assert batches == [3, 4, 5]
    assert lines_without_timing(path) == lines_without_timing(complete)


def test_a_run_in_another_thread_leaves_signals_alone(model):
    records = []
    adapter = driftlaw.adapt(model, "source")
    thread = threading.Thread(target=lambda: records.append(run(NoiseStream(), adapter)))
    thread.start()
    thread.join()
    assert records[0].finished


def test_a_finished_record_is_returned_unchanged(model, tmp_path):
    path = tmp_path / "one.jsonl"
    run(NoiseStream(), driftlaw.adapt(model, "tent"), record=path)
    before = path.read_bytes()
    record = run(NoiseStream(), driftlaw.adapt(model, "tent"), record=path, progress=lambda line: pytest.fail("ran"))
    assert path.read_bytes() == before
    assert record.finished


def test_the_record_of_a_different_run_is_never_overwritten(model, tmp_path):
    path = tmp_path / "one.jsonl"
    run(NoiseStream(), driftlaw.adapt(model, "tent"), record=path)
    before = path.read_bytes()
    with pytest.raises(UsageError, match=r"a different run \(differing: settings\)"):
        run(NoiseStream(), driftlaw.adapt(model, "tent", learning_rate=0.1), record=path)
    with pytest.raises(UsageError, match="stream"):
        run(NoiseStream(seed=1), driftlaw.adapt(model, "tent"), record=path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(("first", "then"), [((), ("drift",)), (("drift",), ()), (("drift",), ("calibration",))])
def test_a_run_with_other_metrics_is_a_different_run(model, tmp_path, first, then):
    path = tmp_path / "one.jsonl"
    run(NoiseStream(), driftlaw.adapt(model, "source"), metrics=first, record=path)
    with pytest.raises(UsageError, match=r"differing: measures\)"):
        run(NoiseStream(), driftlaw.adapt(model, "source"), metrics=then, record=path)
