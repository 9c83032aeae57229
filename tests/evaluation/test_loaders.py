"""run() with loaders: labels, resuming, iterators, and the workers of a DataLoader."""

from __future__ import annotations

import multiprocessing
import shutil
import signal
import warnings
from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import driftlaw
from driftlaw.errors import DriftlawWarning, UsageError
from driftlaw.evaluation import run
from driftlaw.records import read_record, validate_record
from driftlaw.reports import build_report
from tests.evaluation.noise_stream import lines_without_timing

IMAGES = torch.rand(24, 3, 16, 16, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(24) % 4
DATASET = TensorDataset(IMAGES, LABELS)


class Stop(BaseException):
    """Plays a kill: nothing is saved."""


def stop_after(batches: int):
    def progress(line: dict) -> None:
        if line["batch"] + 1 == batches:
            raise Stop

    return progress


class InterruptedLoader:
    """Fails while its third batch is read, as a DataLoader does when Ctrl-C also ends its workers."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        yield from IMAGES.split(8)[:2]
        signal.raise_signal(signal.SIGINT)
        raise RuntimeError("DataLoader worker (pid 1) exited unexpectedly")


@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_loader_gives_the_errors_of_a_plain_loop(model, workers):
    record = run(DataLoader(DATASET, batch_size=8, num_workers=workers), driftlaw.adapt(model, "tent"))
    adapter = driftlaw.adapt(model, "tent")
    for line, images, labels in zip(record.batches, IMAGES.split(8), LABELS.split(8), strict=True):
        logits = adapter(images.contiguous(memory_format=torch.channels_last))
        assert line["wrong"] == int((logits.argmax(1) != labels).sum())
    assert record.header["batches"] == 3
    assert record.header["stream"]["dataset"] == {"name": "TensorDataset", "count": 24}
    assert record.error_by_domain == {"stream": pytest.approx(record.mean_error)}
    assert not multiprocessing.active_children()


def test_normalised_and_uint8_images_give_the_same_errors(model):
    pixels = (IMAGES * 255).to(torch.uint8)
    unit = pixels.float() / 255
    statistics = {"mean": [0.4, 0.5, 0.6], "std": [0.2, 0.25, 0.3]}
    mean, std = (torch.tensor(values)[:, None, None] for values in statistics.values())

    class TrainedOnNormalised(nn.Module):
        """The same network for normalised images."""

        def __init__(self) -> None:
            super().__init__()
            self.network = model

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return self.network(images * std + mean)

    plain = driftlaw.adapt(model, "norm")
    wrong = [int((plain(part).argmax(1) != LABELS[:8]).sum()) for part in unit.split(8)]
    streams = [
        [((part - mean) / std, LABELS[:8]) for part in unit.split(8)],
        [(p, LABELS[:8]) for p in pixels.split(8)],
    ]
    labels = LABELS[:8].repeat(3)
    streams.append(
        driftlaw.make_stream(TensorDataset(unit, labels), corruptions=["clean"], order="as-is", batch_size=8)
    )
    for stream in streams:  # the last has images in [0, 1]
        record = run(stream, driftlaw.adapt(TrainedOnNormalised(), "norm", **statistics))
        assert [line["wrong"] for line in record.batches] == wrong
    clean = run(streams[-1], driftlaw.adapt(TrainedOnNormalised(), "source", **statistics), metrics=["forgetting"])
    assert clean.closing["clean"]["wrong_before"] == sum(line["wrong"] for line in clean.batches)


def test_a_dataset_and_a_folder_can_be_run(model, tmp_path):
    from PIL import Image

    assert run(DATASET, driftlaw.adapt(model, "source")).header["stream"]["order"] == "shuffled"
    for number in range(3):
        Image.new("RGB", (16, 16), (80 * number, 0, 0)).save(tmp_path / f"{number}.png")
    record = run(tmp_path, driftlaw.adapt(model, "source"))
    assert record.header["stream"]["dataset"]["name"] == f"folder:{tmp_path}"
    assert record.mean_error is None


def test_fewer_class_folders_than_classes_cause_a_warning(model, tmp_path):
    from PIL import Image

    for name in "abcd":
        (tmp_path / name).mkdir()
        Image.new("RGB", (16, 16)).save(tmp_path / name / "1.png")
    with warnings.catch_warnings(action="error"):
        run(tmp_path, driftlaw.adapt(model, "source"))
    shutil.rmtree(tmp_path / "d")
    with pytest.warns(DriftlawWarning, match="The folder has 3 class folders, but the model has 4 classes"):
        run(tmp_path, driftlaw.adapt(model, "source"))


@pytest.mark.parametrize("killed_after", [1, 2])
def test_a_killed_run_on_a_loader_resumes(model, tmp_path, killed_after):
    complete, resumed = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    loader, options = DataLoader(DATASET, batch_size=8), {"record": resumed, "checkpoint_seconds": 0}
    run(loader, driftlaw.adapt(model), record=complete)
    with pytest.raises(Stop):
        run(loader, driftlaw.adapt(model), progress=stop_after(killed_after), **options)
    run(loader, driftlaw.adapt(model), **options)
    assert lines_without_timing(resumed) == lines_without_timing(complete)


def test_a_shuffling_loader_cannot_be_resumed(model, tmp_path):
    path = tmp_path / "a.jsonl"

    def loader(seed: int) -> DataLoader:
        return DataLoader(DATASET, batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(seed))

    with pytest.raises(Stop):
        run(loader(1), driftlaw.adapt(model), record=path, checkpoint_seconds=0, progress=stop_after(2))
    with pytest.raises(UsageError, match=r"differing: stream.* only if the loader does not shuffle"):
        run(loader(2), driftlaw.adapt(model), record=path)
    assert run(loader(1), driftlaw.adapt(model), record=path).finished  # a seeded generator gives the same order


def test_a_finished_record_of_other_images_is_not_reused(model, tmp_path):
    path = tmp_path / "a.jsonl"
    run([IMAGES], driftlaw.adapt(model, "source"), record=path)
    assert run(
        [IMAGES], driftlaw.adapt(model, "source"), record=path, progress=lambda line: pytest.fail("ran")
    ).finished
    with pytest.raises(UsageError, match="differing: stream"):
        run([IMAGES.flip(0)], driftlaw.adapt(model, "source"), record=path)


def test_a_generator_is_run_once_and_never_resumed(model, tmp_path):
    path = tmp_path / "a.jsonl"
    record = run((part for part in IMAGES.split(8)), driftlaw.adapt(model, "norm"), record=path)
    assert (record.header["batches"], len(record.batches)) == (None, 3)
    assert validate_record(read_record(path)).finished
    before = path.read_bytes()
    with pytest.raises(UsageError, match="a run on an iterator such as a generator cannot be resumed"):
        run((part for part in IMAGES.split(8)), driftlaw.adapt(model, "norm"), record=path)
    assert path.read_bytes() == before


def test_an_empty_loader_writes_no_record(model, tmp_path):
    with pytest.raises(UsageError, match="has no batches"):
        run(DataLoader(DATASET, batch_size=99, drop_last=True), driftlaw.adapt(model), record=tmp_path / "a.jsonl")
    assert not list(tmp_path.iterdir())


def test_labels_outside_the_classes_are_refused(model):
    with pytest.raises(UsageError, match="4 output classes, but the stream contains label 9"):
        run([(IMAGES, LABELS + 6)], driftlaw.adapt(model, "source"))


def test_an_interrupt_ends_the_workers_and_saves(model, tmp_path):
    path, complete = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    loader = DataLoader(DATASET, batch_size=8, num_workers=2)

    def interrupt(line: dict) -> None:
        if line["batch"] == 1:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as raised:
        run(loader, driftlaw.adapt(model), record=path, progress=interrupt)
    assert raised.value.__traceback__ is not None  # alive, and so are the frames of run()
    assert not multiprocessing.active_children()
    run(loader, driftlaw.adapt(model), record=path)
    run(loader, driftlaw.adapt(model), record=complete)
    assert lines_without_timing(path) == lines_without_timing(complete)


def test_an_interrupt_that_also_ends_the_workers_saves(model, tmp_path):
    path = tmp_path / "a.jsonl"
    with pytest.raises(KeyboardInterrupt):
        run(InterruptedLoader(), driftlaw.adapt(model, "norm"), record=path, metrics=["drift"])
    record, saved = read_record(path), torch.load(f"{path}.checkpoint.pt", weights_only=True)
    assert saved["batches"] == len(record.batches) == 1  # for drift, one batch is read ahead
    assert not any("drift" in line for line in record.batches)  # the domain has not ended


@pytest.mark.parametrize("format", ["html", "md", "brief", "latex", "csv", "json", "terminal"])
def test_runs_without_labels_can_be_reported(model, format):
    records = [run([IMAGES[:12], IMAGES[12:]], driftlaw.adapt(model, method)) for method in ("source", "law")]
    columns = () if format in ("latex", "brief") else ("error", "worst", "recovery", "first_round", "ms")
    text = build_report(records, format, columns=columns)
    assert "nan" not in text.lower().replace("nanmean", "")
    if format in ("html", "md", "terminal"):
        assert "no labels" in text
        assert "–" in text
