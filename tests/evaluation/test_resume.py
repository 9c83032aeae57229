"""Resuming: an interrupted run ends with the same record as an uninterrupted one."""

from __future__ import annotations

import json
import resource
import shutil
import signal
import threading

import pytest
import torch

import driftlaw
from driftlaw.errors import DataError, UsageError
from driftlaw.evaluation import run
from driftlaw.records import dump_line, read_record
from driftlaw.testing.fixtures import SyntheticDataset
from tests.evaluation.noise_stream import METRICS, NoiseStream, lines_without_timing


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
    path.write_bytes(dump_line({"format": "driftlaw-run-1", "stream": 3.5}))
    with pytest.raises(UsageError, match="a different run"):
        run(NoiseStream(), driftlaw.adapt(model, "tent"), record=path)


@pytest.mark.parametrize(("first", "then"), [((), ("drift",)), (("drift",), ()), (("drift",), ("calibration",))])
def test_a_run_with_other_metrics_is_a_different_run(model, tmp_path, first, then):
    path = tmp_path / "one.jsonl"
    run(NoiseStream(), driftlaw.adapt(model, "source"), metrics=first, record=path)
    with pytest.raises(UsageError, match=r"differing: measures\)"):
        run(NoiseStream(), driftlaw.adapt(model, "source"), metrics=then, record=path)


def killed_run(model, path, method="tent"):
    """Write the record and the checkpoint of a run that was killed after five of six batches."""
    with pytest.raises(Killed):
        run(NoiseStream(), driftlaw.adapt(model, method), record=path, checkpoint_seconds=0, progress=kill_after(5))
    return path.with_name(path.name + ".checkpoint.pt")


def changed_line(lines, number, changes):
    return [*lines[:number], dump_line(json.loads(lines[number]) | changes), *lines[number + 1 :]]


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: changed_line(lines, 2, {"wrong": 0}),
        lambda lines: changed_line(lines, 2, {"timing": {"seconds": 9.0}}),
        lambda lines: [lines[0].replace(b'"started":"2', b'"started":"1'), *lines[1:]],
    ],
)
def test_a_checkpoint_is_refused_if_the_lines_before_it_were_changed(model, tmp_path, change):
    path = tmp_path / "one.jsonl"
    checkpoint = killed_run(model, path)
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))
    before = [path.read_bytes(), checkpoint.read_bytes()]
    adapter = driftlaw.adapt(model, "tent")
    state = {name: value.clone() for name, value in adapter.model.state_dict().items()}
    with pytest.raises(DataError, match=r"one\.jsonl\.checkpoint\.pt does not belong to .*one\.jsonl"):
        run(NoiseStream(), adapter, record=path)
    assert [path.read_bytes(), checkpoint.read_bytes()] == before
    torch.testing.assert_close(dict(adapter.model.state_dict()), state, rtol=0, atol=0)


def test_lines_after_the_checkpoint_may_differ(model, tmp_path):
    path, complete = tmp_path / "one.jsonl", tmp_path / "complete.jsonl"
    run(NoiseStream(), driftlaw.adapt(model, "tent"), record=complete)
    killed_run(model, path)
    lines = path.read_bytes().splitlines(keepends=True)  # of the header and 5 batches; the checkpoint is after 4
    path.write_bytes(b"".join(changed_line(lines, 5, {"wrong": 0})))
    run(NoiseStream(), driftlaw.adapt(model, "tent"), record=path)
    assert lines_without_timing(path) == lines_without_timing(complete)


def test_a_checkpoint_without_a_hash_is_used(model, tmp_path):
    path, complete = tmp_path / "one.jsonl", tmp_path / "complete.jsonl"
    run(NoiseStream(), driftlaw.adapt(model, "tent"), record=complete)
    checkpoint, batches = killed_run(model, path), []
    state = torch.load(checkpoint, weights_only=True)
    del state["record_sha256"]  # as driftlaw 0.1 wrote it
    torch.save(state, checkpoint)
    run(NoiseStream(), driftlaw.adapt(model, "tent"), record=path, progress=lambda line: batches.append(line["batch"]))
    assert batches == [4, 5]
    assert lines_without_timing(path) == lines_without_timing(complete)


def test_the_checkpoint_of_a_deleted_record_is_not_used(model, tmp_path):
    path = tmp_path / "one.jsonl"
    checkpoint = killed_run(model, path)
    path.unlink()
    with pytest.raises(Killed):
        run(NoiseStream(), driftlaw.adapt(model, "tent"), record=path, checkpoint_seconds=1e9, progress=kill_after(6))
    assert not checkpoint.exists()
    assert run(NoiseStream(), driftlaw.adapt(model, "tent"), record=path).finished


@pytest.mark.parametrize(
    "content", [{"batches": "4", "adapter": {}}, {"batches": 4, "adapter": [1]}, {"adapter": {}}, {"batches": 0}, {}]
)
def test_a_checkpoint_with_wrong_types_is_refused(model, tmp_path, content):
    path = tmp_path / "one.jsonl"
    checkpoint = killed_run(model, path)
    torch.save(content, checkpoint)
    before = path.read_bytes()
    with pytest.raises(DataError, match=r"checkpoint\.pt is not the checkpoint of a run\. Delete it"):
        run(NoiseStream(), driftlaw.adapt(model, "tent"), record=path)
    assert path.read_bytes() == before


def test_a_finished_record_that_was_changed_is_refused(model, tmp_path):
    path = tmp_path / "one.jsonl"
    record = run(NoiseStream(), driftlaw.adapt(model, "tent"), record=path)
    assert read_record(path).closing == record.closing
    assert len(record.closing["timing"]["record_sha256"]) == 64
    path.write_bytes(b"".join(changed_line(path.read_bytes().splitlines(keepends=True), 3, {"wrong": 0})))
    with pytest.raises(DataError, match="was changed after the run"):
        run(NoiseStream(), driftlaw.adapt(model, "tent"), record=path)


def test_a_full_disk_at_a_checkpoint_is_reported_and_the_run_resumes(model, tmp_path):
    complete, path = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    run(NoiseStream(), driftlaw.adapt(model, "law"), record=complete)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))  # enough for the record, not for the weights
        with pytest.raises(DataError, match=rf"No space left on the disk of {tmp_path}\."):
            run(NoiseStream(), driftlaw.adapt(model, "law"), record=path, checkpoint_seconds=0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert sorted(item.name for item in tmp_path.iterdir()) == ["a.jsonl", "b.jsonl"]
    run(NoiseStream(), driftlaw.adapt(model, "law"), record=path)
    assert lines_without_timing(path) == lines_without_timing(complete)


@pytest.mark.parametrize("checkpoint_seconds", [0.0, 1e9])
def test_an_output_folder_that_is_deleted_during_the_run_is_an_error(model, tmp_path, checkpoint_seconds):
    def delete(line):
        shutil.rmtree(tmp_path / "out", ignore_errors=True)

    path, options = tmp_path / "out" / "one.jsonl", {"checkpoint_seconds": checkpoint_seconds}
    with pytest.raises(DataError, match=r"one\.jsonl was deleted or replaced while the run was writing it"):
        run(NoiseStream(), driftlaw.adapt(model, "tent"), record=path, progress=delete, **options)
    assert not path.parent.exists()
    assert run(NoiseStream(), driftlaw.adapt(model, "tent"), record=path).finished


def test_temporary_files_of_a_killed_run_are_deleted(model, tmp_path):
    path = tmp_path / "one.jsonl"
    killed_run(model, path)
    (tmp_path / ".one.jsonl.checkpoint.a1b2c3d4.part.pt").write_bytes(b"half")
    (tmp_path / ".mine.part.pt").write_bytes(b"precious")
    run(NoiseStream(), driftlaw.adapt(model, "tent"), record=path)
    assert sorted(item.name for item in tmp_path.iterdir()) == [".mine.part.pt", "one.jsonl"]


class OddStream(NoiseStream):
    """A stream with a recipe of its own."""

    def __init__(self, changes):
        super().__init__()
        self.changes = changes

    def recipe(self):
        return super().recipe() | self.changes


@pytest.mark.parametrize(
    ("changes", "problem"),
    [({"corruptions": "fog"}, "stream.corruptions: Input"), ({"batch_size": "many"}, "stream.batch_size: Input")],
)
def test_a_recipe_that_reports_could_not_read_is_refused_before_the_first_step(model, tmp_path, changes, problem):
    options = {"record": tmp_path / "a.jsonl", "progress": lambda line: pytest.fail("ran")}
    with pytest.raises(UsageError, match=rf"cannot be recorded: {problem}.*Check recipe\(\)"):
        run(OddStream(changes), driftlaw.adapt(model, "tent"), **options)
    run(
        OddStream({"corruptions": ("fog",), "more": [1, {}]}),
        driftlaw.adapt(model, "tent"),
        record=tmp_path / "b.jsonl",
    )
    assert read_record(tmp_path / "b.jsonl").finished
