"""``driftlaw.serving.watch``: lines, resuming after a kill, damaged files and checkpoints."""

import json
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import driftlaw
from driftlaw.errors import DataError, DriftlawWarning, UsageError
from driftlaw.serving.class_names import class_names
from driftlaw.serving.image_sources import FolderSource
from driftlaw.serving.network_input import NetworkInput
from driftlaw.serving.watch import Watch

SIZE = 8
IDENTITY = {"method": "law"}


class Killed(BaseException):
    """Ends a run between two lines, as ``kill -9`` does: no checkpoint is written."""


def make_adapter(method="law", **settings):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 5)]
        return driftlaw.adapt(nn.Sequential(*layers), method, learning_rate=1e-2, **settings)


def write_images(folder, count, size=SIZE):
    folder.mkdir(exist_ok=True)
    pixels = np.random.default_rng(0).integers(256, size=(count, size, size, 3), dtype=np.uint8)
    for number, image in enumerate(pixels):
        Image.fromarray(image).save(folder / f"{number}.png")
    return folder


def watch(folder, path, *, kill_after=None, adapter=None, checkpoint_seconds=1e9, identity=IDENTITY, **options):
    """Watch a folder until all images have a line, and return the adapter; ``kill_after`` lines it is ended."""
    watched = Watch(adapter or make_adapter(), path, identity, **options)
    written = []

    def on_line(line):
        written.append(line)
        if len(written) == kill_after:
            raise Killed

    source = FolderSource(folder, NetworkInput(SIZE, SIZE), settle=0, once=True, done=watched.done)
    try:
        watched.run(source, checkpoint_seconds=checkpoint_seconds, on_line=on_line)
    except Killed:
        assert kill_after is not None
    return watched.adapter


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_image_has_one_line_in_natural_order(tmp_path):
    folder, path = write_images(tmp_path / "in", 12), tmp_path / "out.jsonl"
    adapter = watch(folder, path, class_names=["a", "b", "c", "d", "e"])
    lines = read(path)
    assert [line["file"] for line in lines] == [f"{number}.png" for number in range(12)]
    assert list(lines[0]) == ["file", "class", "label", "confidence", "step", "batch"]
    assert all(line["label"] == "abcde"[line["class"]] and 0.2 <= line["confidence"] <= 1 for line in lines)
    assert [line["step"] for line in lines] == list(range(1, 13))
    assert adapter.steps == 12


def test_predictions_are_those_of_the_adapter(tmp_path):
    folder, path, adapter = write_images(tmp_path / "in", 3), tmp_path / "out.jsonl", make_adapter()
    watch(folder, path)
    for number, line in enumerate(read(path)):
        pixels = torch.from_numpy(np.array(Image.open(folder / f"{number}.png"))).permute(2, 0, 1)[None]
        confidence, predicted = adapter(pixels).softmax(1).max(1)
        assert (line["class"], line["confidence"]) == (predicted.item(), round(confidence.item(), 6))


@pytest.mark.parametrize("batch_size", [1, 4])
@pytest.mark.parametrize("checkpoint_seconds", [0, 1e9])
def test_killed_run_ends_with_the_same_lines_and_the_same_adapter(tmp_path, batch_size, checkpoint_seconds):
    folder = write_images(tmp_path / "in", 12)
    options = {"batch_size": batch_size, "checkpoint_seconds": checkpoint_seconds, "adapt_every": 2}
    expected = watch(folder, tmp_path / "undisturbed.jsonl", **options)
    path = tmp_path / "out.jsonl"
    watch(folder, path, kill_after=batch_size, **options)
    watch(folder, path, kill_after=batch_size, **options)
    with path.open("ab") as file:
        file.write(b'{"file": "8.p')  # an incomplete line
    resumed = watch(folder, path, **options)
    assert path.read_bytes() == (tmp_path / "undisturbed.jsonl").read_bytes()
    assert all(torch.equal(a, b) for a, b in zip(expected.parameters(), resumed.parameters(), strict=True))


def test_guard_continues_as_without_the_interruption(tmp_path):
    folder, path = write_images(tmp_path / "in", 12), tmp_path / "out.jsonl"
    for number in (2, 7):
        Image.new("RGB", (SIZE, SIZE), "gray").save(folder / f"{number}.png")
    guarded = partial(make_adapter, guard={"sample": 8, "check_images": 8})
    expected = watch(folder, tmp_path / "undisturbed.jsonl", adapter=guarded())
    watch(folder, path, adapter=guarded(), kill_after=5, checkpoint_seconds=0)
    resumed = watch(folder, path, adapter=guarded())
    assert path.read_bytes() == (tmp_path / "undisturbed.jsonl").read_bytes()
    assert resumed.guard.counts == expected.guard.counts == {"skip_image": 2}


def test_kill_within_a_batch_loses_no_image(tmp_path):
    folder, path = write_images(tmp_path / "in", 10), tmp_path / "out.jsonl"
    watch(folder, path, kill_after=6, batch_size=4)
    watch(folder, path, batch_size=4)
    assert [(line["file"], line["batch"]) for line in read(path)] == [
        (f"{number}.png", batch) for number, batch in enumerate([0] * 4 + [1] * 2 + [2] * 4)
    ]


def test_finished_run_continues_with_new_images_only(tmp_path):
    folder, path = write_images(tmp_path / "in", 3), tmp_path / "out.jsonl"
    watch(folder, path)
    write_images(folder, 5)
    watch(folder, path)
    assert [line["file"] for line in read(path)] == [f"{number}.png" for number in range(5)]


def test_images_that_are_gone_are_not_read_again(tmp_path):
    folder, path = write_images(tmp_path / "in", 6), tmp_path / "out.jsonl"
    watch(folder, path, kill_after=4)
    for number in range(4):
        (folder / f"{number}.png").unlink()
    with pytest.warns(DriftlawWarning, match="4 images after the checkpoint"):
        adapter = watch(folder, path)
    assert adapter.steps == 2
    assert [line["file"] for line in read(path)] == [f"{number}.png" for number in range(6)]


def test_images_are_predicted_without_an_update_between_updates(tmp_path):
    folder, path = write_images(tmp_path / "in", 6), tmp_path / "out.jsonl"
    watch(folder, path, adapt_every=3)
    assert [line["step"] for line in read(path)] == [1, 1, 1, 2, 2, 2]


def test_unreadable_file_has_a_line_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setattr("driftlaw.serving.image_sources.PATIENCE", 0.0)
    folder, path = write_images(tmp_path / "in", 3), tmp_path / "out.jsonl"
    (folder / "1.png").write_bytes((folder / "1.png").read_bytes()[:60])
    watch(folder, path)
    lines = read(path)
    assert [line["file"] for line in lines] == ["0.png", "1.png", "2.png"]
    assert list(lines[1]) == ["file", "error"]
    assert "cannot be read as an image" in lines[1]["error"]
    watch(folder, path)
    assert len(read(path)) == 3


def test_guard_events_are_in_the_line(tmp_path):
    folder, path = write_images(tmp_path / "in", 2), tmp_path / "out.jsonl"
    Image.new("RGB", (SIZE, SIZE), "gray").save(folder / "1.png")
    watch(folder, path, adapter=make_adapter(guard=True))
    first, second = read(path)
    assert "guard" not in first
    assert [event["action"] for event in second["guard"]] == ["skip_image"]


def test_prediction_that_is_not_finite_is_null(tmp_path):
    class Broken(nn.Sequential):
        def forward(self, images):
            return super().forward(images) * torch.nan

    folder, path = write_images(tmp_path / "in", 1), tmp_path / "out.jsonl"
    with pytest.warns(DriftlawWarning, match="NaN"):
        watch(folder, path, adapter=driftlaw.adapt(Broken(nn.Flatten(), nn.Linear(3 * SIZE * SIZE, 4)), "source"))
    assert read(path) == [{"file": "0.png", "class": None, "confidence": None, "step": 0, "batch": 0}]


def test_output_of_a_different_command_is_refused(tmp_path):
    folder, path = write_images(tmp_path / "in", 2), tmp_path / "out.jsonl"
    watch(folder, path)
    with pytest.raises(UsageError, match="differing: method"):
        watch(folder, path, identity={"method": "tent"})


def test_file_without_a_checkpoint_is_not_overwritten(tmp_path):
    path = tmp_path / "out.jsonl"
    path.write_text("mine\n")
    with pytest.raises(UsageError, match="exists, but not its checkpoint"):
        watch(tmp_path, path)
    assert path.read_text() == "mine\n"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.write_text(path.read_text().replace("0.png", "9.png")), "was changed after its checkpoint"),
        (lambda path: path.write_text(""), "ends before line 2"),
        (lambda path: path.with_name("out.jsonl.checkpoint.pt").write_bytes(b"no"), "is damaged"),
        (lambda path: torch.save({"a": 1}, path.with_name("out.jsonl.checkpoint.pt")), "is not a checkpoint"),
    ],
    ids=["changed line", "emptied file", "damaged checkpoint", "other checkpoint"],
)
def test_damaged_files_are_refused(tmp_path, damage, message):
    folder, path = write_images(tmp_path / "in", 2), tmp_path / "out.jsonl"
    watch(folder, path)
    damage(path)
    with pytest.raises(DataError, match=message):
        watch(folder, path)


def test_second_process_on_the_same_output_is_refused(tmp_path):
    folder, path = write_images(tmp_path / "in", 2), tmp_path / "out.jsonl"

    def start_again(_):
        with pytest.raises(DataError, match="being written by another process"):
            watch(folder, path)

    Watch(make_adapter(), path, IDENTITY).run(
        FolderSource(folder, NetworkInput(SIZE, SIZE), settle=0, once=True), on_line=start_again
    )
    assert len(read(path)) == 2


def test_class_names_are_those_of_the_training_data_or_the_configuration():
    assert class_names(driftlaw.load_model("wrn_16_1-cifar10"))[3] == "cat"
    assert class_names(nn.Linear(2, 2)) == []
    model = nn.Module()
    model.network = nn.Module()
    model.network.config = type("Config", (), {"id2label": {0: "left", 1: "right"}})()
    assert class_names(model) == ["left", "right"]
