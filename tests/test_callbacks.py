"""Writers of diagnostics: CSV files and TensorBoard."""

from __future__ import annotations

import csv
import sys
from contextlib import closing

import pytest

import driftlaw
from driftlaw.base import Monitor, StepOutput
from driftlaw.callbacks import CsvWriter, TensorBoardWriter, scalars
from driftlaw.errors import DataError, UsageError
from driftlaw.testing.fixtures import make_images, tiny_model


def rows(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_scalars_name_the_entries_of_vectors():
    adapter = driftlaw.adapt(tiny_model(), "law")
    adapter.monitor = Monitor(every=1)
    output = adapter.step(make_images())
    values = scalars(adapter, output)
    assert values["entropy"] == pytest.approx(float(output.diagnostics["entropy"]), rel=1e-5)
    assert values["class_shares/3"] == pytest.approx(float(output.diagnostics["class_shares"][3]))
    weights = output.diagnostics["layer_weights"].tolist()
    assert values["layer_weights/conv.weight"] == pytest.approx(weights[0], rel=1e-5)
    assert values["layer_distance/conv.weight"] > 0


def test_scalars_leave_out_what_is_not_finite():
    adapter = driftlaw.adapt(tiny_model(), "source")
    logits = adapter.predict(make_images())
    assert scalars(adapter, StepOutput(logits, {"loss": float("nan"), "kept": 0.5})) == {"kept": 0.5}


def test_csv_has_one_row_per_step_as_soon_as_the_step_returns(tmp_path):
    path = tmp_path / "new folder" / "steps.csv"
    adapter = driftlaw.adapt(tiny_model(), "tent")
    adapter.add_callback(CsvWriter(path))
    outputs = [adapter.step(make_images(index)) for index in range(3)]
    written = rows(path)
    assert [row["step"] for row in written] == ["1", "2", "3"]
    assert [row["images"] for row in written] == ["8"] * 3
    for row, output in zip(written, outputs, strict=True):
        assert float(row["entropy"]) == pytest.approx(float(output.diagnostics["entropy"]), rel=1e-5)
        assert float(row["class_shares/0"]) == pytest.approx(float(output.diagnostics["class_shares"][0]))
    adapter.close()
    adapter(make_images(3))
    assert len(rows(path)) == 3


def test_csv_has_columns_for_measured_steps_even_if_the_first_row_is_not_measured(tmp_path):
    adapter = driftlaw.adapt(tiny_model(), "tent")
    adapter.monitor = Monitor(every=2)
    adapter(make_images(0))
    adapter.add_callback(CsvWriter(tmp_path / "steps.csv"))
    for index in (1, 2):
        adapter(make_images(index))
    adapter.close()
    first, second = rows(tmp_path / "steps.csv")
    name = f"layer_distance/{adapter.trainable_names[0]}"
    assert (first["source_agreement"], first[name]) == ("", "")
    assert 0 <= float(second["source_agreement"]) <= 1
    assert float(second[name]) > 0


def test_csv_in_a_path_that_is_no_folder_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="Cannot create directory"):
        CsvWriter(tmp_path / "file" / "steps.csv")


def test_tensorboard_missing_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UsageError, match=r"needs tensorboard .*pip install 'driftlaw\[tensorboard\]'"):
        TensorBoardWriter(tmp_path)


def test_tensorboard_every_must_be_positive(tmp_path):
    with pytest.raises(UsageError, match="every=0: expected at least 1"):
        TensorBoardWriter(tmp_path, every=0)


@pytest.mark.small_batches
def test_csv_has_a_row_for_batches_that_are_collected_for_one_update(tmp_path):
    adapter = driftlaw.adapt(tiny_model(), "tent", window=4)
    with closing(CsvWriter(tmp_path / "steps.csv")) as writer:
        adapter.add_callback(writer)
        for index in range(8):
            adapter(make_images(index, count=1))
    written = rows(tmp_path / "steps.csv")
    assert [row["step"] for row in written] == ["0", "0", "0", "1", "1", "1", "1", "2"]
    assert adapter.summary()["images"] == 8


def test_tensorboard_has_a_chart_per_number(tmp_path):
    loading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    adapter = driftlaw.adapt(tiny_model(), "tent")
    writer = adapter.add_callback(TensorBoardWriter(tmp_path, every=2))
    outputs = [adapter.step(make_images(index)) for index in range(4)]
    writer.close()
    events = loading.EventAccumulator(str(tmp_path)).Reload()
    points = events.Scalars("adaptation/entropy")
    assert [point.step for point in points] == [1, 3]
    expected = [float(output.diagnostics["entropy"]) for output in outputs[::2]]
    assert [point.value for point in points] == pytest.approx(expected, rel=1e-5)
    assert "class_shares/3" in events.Tags()["scalars"]
