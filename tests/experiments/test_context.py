"""Run context: runs write their records, whatever ran before."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from driftlaw.errors import DataError, DriftlawWarning, UsageError
from driftlaw.experiments import RunContext, RunOptions, RunSpec, plan_run
from driftlaw.records import RecordWriter, RunRecord, compress_record, dump_line, read_lines
from driftlaw.streams import CorruptedStream, make_stream
from tests.experiments.tiny import tiny_spec, tiny_weights

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> Path:
    return tiny_weights(tmp_path_factory.mktemp("weights") / "tiny.safetensors")


class Listener:
    """Stores the number of steps."""

    def __init__(self):
        self.steps, self.done = [], []

    def started(self, spec, steps):
        self.steps.append(steps)

    def stepped(self, spec, done):
        self.done.append(done)


def run(spec: RunSpec, out: Path, **options) -> RunRecord:
    return RunContext(CPU).run(spec, RunOptions(out, **options))


def test_a_run_writes_its_record_once(weights, tmp_path):
    spec, listener = tiny_spec(weights, experiment="table1"), Listener()
    record = RunContext(CPU).run(spec, RunOptions(tmp_path), listener)
    assert record.path == tmp_path / "table1" / "tiny" / spec.file_name
    assert (listener.steps, listener.done) == ([4], [1, 2, 3, 4])
    assert (record.method, record.seed, record.finished) == ("norm", 1, True)
    before = record.path.read_bytes()
    run(spec, tmp_path)
    assert record.path.read_bytes() == before


def test_a_record_that_another_process_writes_is_not_overwritten(weights, tmp_path):
    spec = tiny_spec(weights)
    with RecordWriter(spec.record_path(tmp_path)) as other:
        other.write({"begun": 1})
        with pytest.raises(DataError, match="being written by another process"):
            run(spec, tmp_path, overwrite=True)
        other.write({"and": 2})
    assert len(read_lines(spec.record_path(tmp_path))) == 2
    assert run(spec, tmp_path, overwrite=True).finished


def test_runs_in_one_context_do_not_influence_each_other(weights, tmp_path):
    other = tiny_weights(tmp_path / "other.safetensors", seed=1)
    specs = [tiny_spec(weights, "law"), tiny_spec(other, "tent", seed=2), tiny_spec(weights, "law", severity=2)]
    context = RunContext(CPU)
    together = [context.run(spec, RunOptions(tmp_path / "together")) for spec in specs]
    alone = [run(spec, tmp_path / "alone") for spec in specs]
    for one, two in zip(together, alone, strict=True):
        assert [line["wrong"] for line in one.batches] == [line["wrong"] for line in two.batches]
        assert one.header["stream"] == two.header["stream"]
        assert one.header["model"] == two.header["model"]


def test_a_compressed_record_is_reused_unless_its_weights_differ(weights, tmp_path):
    spec = tiny_spec(weights)
    compressed = compress_record(run(spec, tmp_path / "out").path)
    assert run(spec, tmp_path / "out").path == compressed
    assert run(spec, tmp_path / "out", overwrite=True).path == spec.record_path(tmp_path / "out")
    assert not compressed.exists()
    changed = tiny_weights(tmp_path / "changed.safetensors")
    spec = tiny_spec(changed)
    compress_record(run(spec, tmp_path / "out").path)
    tiny_weights(changed, seed=1)
    with pytest.raises(UsageError, match="other weights"):
        run(spec, tmp_path / "out")


def test_a_compressed_record_of_images_of_another_encoding_is_not_reused(weights, tmp_path, monkeypatch):
    spec = tiny_spec(weights)
    compress_record(run(spec, tmp_path).path)
    monkeypatch.setattr(CorruptedStream, "encoding", "jpeg85")
    with pytest.raises(UsageError, match="images of another encoding"):
        run(spec, tmp_path)
    with pytest.warns(DriftlawWarning, match=r"was made with other images \(differing: stream\)"):
        assert run(spec, tmp_path, replace_incompatible=True).header["stream"]["encoding"] == "jpeg85"


@pytest.mark.parametrize("compress", [False, True])
def test_a_record_of_other_weights_can_be_renamed_and_run_again(tmp_path, compress):
    spec = tiny_spec(tiny_weights(tmp_path / "changed.safetensors"))
    old = run(spec, tmp_path).path
    old = compress_record(old) if compress else old
    before = old.read_bytes()
    tiny_weights(tmp_path / "changed.safetensors", seed=1)
    with pytest.raises(UsageError, match="differing: model" if not compress else "other weights"):
        run(spec, tmp_path)
    with pytest.warns(DriftlawWarning, match=r"was made with other weights or another network \(differing: model\)"):
        record = run(spec, tmp_path, replace_incompatible=True)
    assert record.finished
    assert record.path == spec.record_path(tmp_path)
    assert old.with_name(old.name + ".old").read_bytes() == before


def change_header(path, **fields):
    header, *others = read_lines(path)
    path.write_bytes(b"".join(map(dump_line, [header | fields, *others])))


def test_a_record_of_another_version_can_be_renamed_and_run_again_but_not_one_of_another_device(weights, tmp_path):
    spec = tiny_spec(weights)
    path = run(spec, tmp_path).path
    change_header(path, format="driftlaw-run-0")
    with pytest.warns(DriftlawWarning, match=r"by an incompatible version of driftlaw \(differing: format\)"):
        assert run(spec, tmp_path, replace_incompatible=True).finished
    change_header(path, device={"type": "cuda"})
    with pytest.raises(UsageError, match=r"differing: device"):
        run(spec, tmp_path, replace_incompatible=True)


def test_a_model_with_other_classes_is_an_error(tmp_path):
    spec = tiny_spec(tiny_weights(tmp_path / "three.safetensors", classes=3))
    for call in (lambda: RunContext(CPU).check([spec]), lambda: run(spec, tmp_path)):
        with pytest.raises(UsageError, match="has 3 output classes, but the stream has 10"):
            call()


def test_wrong_settings_are_found_before_anything_runs(weights):
    with pytest.raises(UsageError, match="Did you mean 'tau'"):
        RunContext(CPU).check([tiny_spec(weights), tiny_spec(weights, "law", settings={"taw": 1.0})])


# --- the training data -----------------------------------------------------------------------------------------------


def image_folder(root: Path, classes: int, size: int) -> Path:
    for split in ("train", "test"):
        for label in range(classes):
            folder = root / split / f"class{label}"
            folder.mkdir(parents=True)
            Image.fromarray(np.full((size, size, 3), 25 * label, dtype=np.uint8)).save(folder / "0.png")
    return root


def test_missing_training_data_is_an_error_with_instructions(tmp_path):
    specs = plan_run("embedded", methods="source,gtta", assignments=["stream.train_data=cifar10"])
    with pytest.raises(DataError, match=r"driftlaw data get cifar10.*--methods source$"):
        RunContext(CPU, tmp_path).train_data(specs, make_stream("embedded"))


def test_training_data_with_other_classes_or_sizes_is_an_error(tmp_path):
    assignment = f"stream.train_data=folder:{image_folder(tmp_path, classes=3, size=24)}"
    specs = plan_run("embedded", methods="gtta", assignments=[assignment])
    with pytest.raises(UsageError, match=r"classes: 3, stream: 10[\s\S]*image size: \(24, 24\)"):
        RunContext(CPU).train_data(specs, make_stream("embedded"))


def test_no_training_data_is_read_for_methods_that_need_none(tmp_path):
    specs = plan_run("embedded", methods="source,law")
    assert RunContext(CPU, tmp_path).train_data(specs, make_stream("embedded")) is None
