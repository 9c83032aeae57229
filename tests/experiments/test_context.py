"""The workbench: a cell in, a record out, whatever the last cell was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from driftlaw.errors import DataError, UsageError
from driftlaw.experiments import Workbench, plan_run
from driftlaw.records import RecordWriter, read_lines
from driftlaw.records.compress import compress_record
from driftlaw.streams import make_stream
from tests.experiments.tiny import tiny_cell, tiny_weights

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> Path:
    return tiny_weights(tmp_path_factory.mktemp("weights") / "tiny.safetensors")


def test_a_cell_becomes_a_record_of_its_name_and_is_not_run_twice(weights, tmp_path):
    cell, steps, taken = tiny_cell(weights, experiment="table1"), [], []
    record = Workbench(CPU).run(cell, tmp_path, started=steps.append, progress=taken.append)
    assert record.path == tmp_path / "table1" / "tiny" / cell.file_name
    assert (steps, len(taken)) == ([4], 4)
    assert (record.method, record.seed, record.finished) == ("norm", 1, True)
    before = record.path.read_bytes()
    Workbench(CPU).run(cell, tmp_path)
    assert record.path.read_bytes() == before


def test_a_record_that_another_writes_is_not_replaced(weights, tmp_path):
    cell = tiny_cell(weights)
    with RecordWriter(cell.sink(tmp_path)) as other:
        other.write({"begun": 1})
        with pytest.raises(DataError, match="being written by another process"):
            Workbench(CPU).run(cell, tmp_path, again=True)
        other.write({"and": 2})
    assert len(read_lines(cell.sink(tmp_path))) == 2
    assert Workbench(CPU).run(cell, tmp_path, again=True).finished


def test_cells_in_a_row_give_what_each_gives_alone(weights, tmp_path):
    other = tiny_weights(tmp_path / "other.safetensors", seed=1)
    cells = [tiny_cell(weights, "law"), tiny_cell(other, "tent", seed=2), tiny_cell(weights, "law", severity=2)]
    bench = Workbench(CPU)
    together = [bench.run(cell, tmp_path / "together") for cell in cells]
    alone = [Workbench(CPU).run(cell, tmp_path / "alone") for cell in cells]
    for one, two in zip(together, alone, strict=True):
        assert [line["wrong"] for line in one.batches] == [line["wrong"] for line in two.batches]
        assert one.header["stream"] == two.header["stream"]
        assert one.header["model"] == two.header["model"]


def test_a_compressed_record_counts_unless_it_is_of_other_weights(weights, tmp_path):
    cell = tiny_cell(weights)
    packed = compress_record(Workbench(CPU).run(cell, tmp_path / "out").path)
    assert Workbench(CPU).run(cell, tmp_path / "out").path == packed
    assert Workbench(CPU).run(cell, tmp_path / "out", again=True).path == cell.sink(tmp_path / "out")
    assert not packed.exists()
    changed = tiny_weights(tmp_path / "changed.safetensors")
    cell = tiny_cell(changed)
    compress_record(Workbench(CPU).run(cell, tmp_path / "out").path)
    tiny_weights(changed, seed=1)
    with pytest.raises(UsageError, match="other weights"):
        Workbench(CPU).run(cell, tmp_path / "out")


def test_a_network_of_other_classes_is_refused(tmp_path):
    cell = tiny_cell(tiny_weights(tmp_path / "three.safetensors", classes=3))
    for ask in (lambda: Workbench(CPU).check([cell]), lambda: Workbench(CPU).run(cell, tmp_path)):
        with pytest.raises(UsageError, match="answers 3 classes, the stream has 10"):
            ask()


def test_wrong_settings_are_found_before_anything_runs(weights):
    with pytest.raises(UsageError, match="Did you mean 'tau'"):
        Workbench(CPU).check([tiny_cell(weights), tiny_cell(weights, "law", settings={"taw": 1.0})])


# --- the training data -----------------------------------------------------------------------------------------------


def pictures(root: Path, classes: int, size: int) -> Path:
    for split in ("train", "test"):
        for label in range(classes):
            place = root / split / f"class{label}"
            place.mkdir(parents=True)
            Image.fromarray(np.full((size, size, 3), 25 * label, dtype=np.uint8)).save(place / "0.png")
    return root


def test_training_data_that_is_not_there_is_told(tmp_path):
    cells = plan_run("embedded", methods="source,gtta", assignments=["stream.source=cifar10"])
    with pytest.raises(DataError, match=r"driftlaw data get cifar10.*--methods source$"):
        Workbench(CPU, tmp_path).training_data(cells, make_stream("embedded"))


def test_training_data_of_other_classes_and_sizes_is_refused(tmp_path):
    place = f"stream.source=folder:{pictures(tmp_path, classes=3, size=24)}"
    cells = plan_run("embedded", methods="gtta", assignments=[place])
    with pytest.raises(UsageError, match=r"classes: 3 against the stream's 10[\s\S]*image size: \(24, 24\)"):
        Workbench(CPU).training_data(cells, make_stream("embedded"))


def test_no_training_data_is_read_for_methods_that_need_none(tmp_path):
    cells = plan_run("embedded", methods="source,law")
    assert Workbench(CPU, tmp_path).training_data(cells, make_stream("embedded")) is None
