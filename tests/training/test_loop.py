"""The training loop."""

import contextlib
import json
import os

import numpy as np
import pytest
import torch

from driftlaw import hardware
from driftlaw.datasets import ArrayImages
from driftlaw.errors import DataError, UsageError
from driftlaw.files import sha256_of
from driftlaw.models import load_model, weights_sha256
from driftlaw.records import read_lines
from driftlaw.training import Recipe, Training, loop, train

CPU = torch.device("cpu")


def easy_images(name, count, seed):
    """Return noise that is brighter in the upper or in the lower half: two classes that a network learns at once."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % 2
    images = rng.integers(0, 100, (count, 16, 16, 3), dtype=np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[:8] += np.uint8(150 * (label == 0))
        image[8:] += np.uint8(150 * (label == 1))
    return ArrayImages(name, images, labels, ["upper", "lower"], {"split": name})


TRAIN, TEST = easy_images("train", 48, 0), easy_images("test", 20, 1)


def training(folder, *, seed=0, command="", **recipe):
    recipe = {"epochs": 3, "batch_size": 16, "learning_rate": 0.05, "crop_padding": 1} | recipe
    place = folder / "net.safetensors"
    return Training("wrn_10_1", TRAIN, TEST, Recipe(**recipe), place, CPU, seed, command)


def without_timing(line):
    return {key: value for key, value in line.items() if key not in ("timing", "command", "commit")}


def test_a_tiny_training_learns_and_writes_weights_and_record(tmp_path):
    told = []
    plan = training(tmp_path, command="driftlaw train")
    closing = train(plan, progress=told.append)
    assert closing["accuracy"] > 90
    assert sorted(os.listdir(tmp_path)) == ["net.safetensors", "net.train.jsonl"]
    header, *epochs, last = read_lines(plan.record)
    assert header["format"] == "driftlaw-train-1"
    assert (header["model"], header["seed"], header["command"]) == ("wrn_10_1", 0, "driftlaw train")
    assert header["dataset"] == TRAIN.facts()
    assert header["recipe"] == plan.recipe.model_dump(mode="json")
    assert header["precision"] == "float32"
    assert [line["epoch"] for line in epochs] == [1, 2, 3]
    assert epochs == told
    assert epochs[-1]["loss"] < epochs[0]["loss"] / 2
    assert epochs[0]["learning_rate"] == 0.05
    assert last == closing
    assert closing["test"] == TEST.facts()
    model = load_model(plan.weights, num_classes=2)
    assert closing["weights_sha256"] == weights_sha256(model)
    assert closing["file_sha256"] == sha256_of(plan.weights)
    assert model.info["accuracy"] == closing["accuracy"]
    assert model.info["dataset"] == "train"


def test_the_accuracy_is_that_of_the_weights_on_disk(tmp_path):
    plan = training(tmp_path, epochs=1)
    closing = train(plan)
    model = load_model(plan.weights)
    images = torch.from_numpy(TEST.images(range(20))).permute(0, 3, 1, 2).float() / 255
    right = int((model(images).argmax(1).numpy() == TEST.labels).sum())
    assert closing["accuracy"] == pytest.approx(100 * right / 20)
    assert loop.evaluate(model, TEST, CPU) == closing["accuracy"]


def test_the_seed_alone_decides(tmp_path):
    torch.manual_seed(5)
    one = train(training(tmp_path / "one", epochs=1))
    torch.manual_seed(6)
    before = torch.get_rng_state()
    two = train(training(tmp_path / "two", epochs=1))
    assert torch.equal(torch.get_rng_state(), before)
    other = train(training(tmp_path / "other", epochs=1, seed=1))
    assert one["file_sha256"] == two["file_sha256"]
    assert one["weights_sha256"] != other["weights_sha256"]


class Killed(Exception):
    """What a kill looks like from inside."""


def killed_after(epoch, kind=Killed):
    def progress(line):
        if line["epoch"] == epoch:
            raise kind

    return progress


@pytest.mark.parametrize("epoch", [1, 2, 3])
def test_a_killed_training_goes_on_and_ends_in_the_same_weights_and_record(tmp_path, monkeypatch, epoch):
    undisturbed = training(tmp_path / "a", epochs=3)
    train(undisturbed)
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", -1.0)
    monkeypatch.setattr(loop, "SAVING_SHARE", float("inf"))
    plan = training(tmp_path / "b", epochs=3)
    with pytest.raises(Killed):
        train(plan, progress=killed_after(epoch))
    assert not plan.weights.exists()
    assert plan.checkpoint.exists() == (epoch > 1)
    told = []
    train(plan, progress=lambda line: told.append(line["epoch"]))
    assert told == list(range(max(epoch, 1), 4))
    assert plan.weights.read_bytes() == undisturbed.weights.read_bytes()
    assert list(map(without_timing, read_lines(plan.record))) == list(
        map(without_timing, read_lines(undisturbed.record))
    )
    assert not plan.checkpoint.exists()


def test_an_interrupted_training_saves_its_last_whole_epoch_first(tmp_path):
    undisturbed, plan = training(tmp_path / "a"), training(tmp_path / "b")
    train(undisturbed)
    with pytest.raises(KeyboardInterrupt):
        train(plan, progress=killed_after(2, KeyboardInterrupt))
    assert plan.checkpoint.exists()
    told = []
    train(plan, progress=lambda line: told.append(line["epoch"]))
    assert told == [3]
    assert plan.weights.read_bytes() == undisturbed.weights.read_bytes()


def test_an_interrupt_in_the_middle_of_an_epoch_loses_only_that_epoch(tmp_path, monkeypatch):
    undisturbed, plan = training(tmp_path / "a"), training(tmp_path / "b")
    train(undisturbed)
    steps, real = [], loop._Run._step

    def step(self, images, labels, epoch):
        steps.append(epoch)
        if len(steps) == 5:  # the second of three steps of the second epoch
            raise KeyboardInterrupt
        return real(self, images, labels, epoch)

    monkeypatch.setattr(loop._Run, "_step", step)
    with pytest.raises(KeyboardInterrupt):
        train(plan)
    assert len(read_lines(plan.record)) == 2
    train(plan)
    assert plan.weights.read_bytes() == undisturbed.weights.read_bytes()


def interrupted(tmp_path, **recipe):
    plan = training(tmp_path, **recipe)
    with pytest.raises(KeyboardInterrupt):
        train(plan, progress=killed_after(1, KeyboardInterrupt))
    return plan


def test_another_trainings_checkpoint_is_refused_and_kept(tmp_path):
    plan = interrupted(tmp_path)
    record, checkpoint = plan.record.read_bytes(), plan.checkpoint.read_bytes()
    for other in (training(tmp_path, weight_decay=0.1), training(tmp_path, seed=1)):
        with pytest.raises(DataError, match=r"net\.checkpoint\.pt was written by another training .*delete the file"):
            train(other)
    assert plan.record.read_bytes() == record
    assert plan.checkpoint.read_bytes() == checkpoint


def test_another_commit_or_command_may_go_on(tmp_path, monkeypatch):
    interrupted(tmp_path)
    monkeypatch.setenv("DRIFTLAW_COMMIT", "another")
    assert train(training(tmp_path, command="the same, typed otherwise"))["closing"]


def test_a_damaged_checkpoint_is_told(tmp_path):
    plan = interrupted(tmp_path)
    plan.checkpoint.write_bytes(plan.checkpoint.read_bytes()[:1000])
    with pytest.raises(
        DataError, match=r"net\.checkpoint\.pt is damaged .*delete it, and the work starts from its beginning"
    ):
        train(plan)


def test_a_checkpoint_without_its_record_is_told(tmp_path):
    plan = interrupted(tmp_path)
    plan.record.unlink()
    with pytest.raises(DataError, match=r"net\.train\.jsonl ends before line 2"):
        train(plan)


def test_a_loss_that_is_no_number_stops_the_training_with_a_remedy(tmp_path):
    plan = training(tmp_path, learning_rate=1e30, warmup_epochs=0)
    with pytest.raises(DataError, match=r"the loss became nan in epoch 1 at a rate of up to 1e\+30: .*learning_rate=…"):
        train(plan)
    assert not plan.weights.exists()


def test_an_infinite_loss_stops_it_too(tmp_path, monkeypatch):
    monkeypatch.setattr(loop._Run, "_step", lambda self, *batch: torch.tensor(float("inf")))
    with pytest.raises(DataError, match="the loss became inf"):
        train(training(tmp_path))


def test_weight_decay_holds_for_all_parameters_norms_and_biases_too(tmp_path):
    run = loop._Run(training(tmp_path, weight_decay=0.01))
    (group,) = run.optimizer.param_groups
    assert group["weight_decay"] == 0.01
    assert len(group["params"]) == len(list(run.model.parameters()))
    assert group["nesterov"]
    before = {name: value.detach().clone() for name, value in run.model.named_parameters()}
    for value in run.model.parameters():
        value.grad = torch.zeros_like(value)
    run.optimizer.step()
    for name, value in run.model.named_parameters():
        # Nesterov's first step is 1.9 times the gradient
        torch.testing.assert_close(value.detach(), before[name] * (1 - 0.05 * 0.01 * 1.9), msg=name)


def test_every_image_is_seen_once_an_epoch_at_the_scheduled_rate(tmp_path, monkeypatch):
    run = loop._Run(training(tmp_path, epochs=4))
    seen, rates = [], []
    real, views = loop._Run._step, loop._Run._views

    def step(self, images, labels, epoch):
        loss = real(self, images, labels, epoch)
        rates.append(self.optimizer.param_groups[0]["lr"])
        return loss

    def watched(self, chunk):
        seen.extend(torch.cat(chunk).tolist())
        return views(self, chunk)

    monkeypatch.setattr(loop._Run, "_step", step)
    monkeypatch.setattr(loop._Run, "_views", watched)
    run.next_epoch()
    assert sorted(seen) == list(range(48))
    assert rates == pytest.approx([0, 0.05 / 3, 0.05 * 2 / 3])
    run.next_epoch()
    assert seen[48:] != seen[:48]


def test_bf16_falls_back_to_float32_where_the_device_cannot(tmp_path, monkeypatch):
    monkeypatch.setattr(hardware, "supports_bf16", lambda device: False)
    plan = training(tmp_path, epochs=1, precision="bf16")
    train(plan)
    assert read_lines(plan.record)[0]["precision"] == "float32"
    monkeypatch.setattr(hardware, "supports_bf16", lambda device: True)
    assert loop._Run(plan).precision == "bf16"


def test_weights_are_float32_whatever_the_precision(tmp_path, monkeypatch):
    monkeypatch.setattr(hardware, "supports_bf16", lambda device: True)
    seen = []
    run = loop._Run(training(tmp_path, epochs=1, precision="bf16"))

    def loss_of(model, images, labels, consistency_weight):  # no convolution: not every CPU has them in bf16
        seen.append(torch.is_autocast_enabled("cpu"))
        means = (images.float() / 255).mean((2, 3)).repeat(1, 22)[:, :64]
        return torch.nn.functional.cross_entropy(model.head(means), labels)

    run.loss_of = loss_of
    run.next_epoch()
    assert set(seen) == {True}
    assert {value.dtype for value in run.model.parameters()} == {torch.float32}


@pytest.mark.parametrize("seed", [0, 1])
def test_a_tiny_training_with_augmix_learns_and_its_normalisation_goes_with_the_weights(tmp_path, seed):
    plan = training(tmp_path, seed=seed, epochs=4, augmentation="augmix", normalise="half")
    closing = train(plan)
    assert closing["accuracy"] > 85
    model = load_model(plan.weights)
    assert model.info["normalise"] == {"mean": [0.5] * 3, "std": [0.5] * 3}
    assert model.info["augmentation"] == "augmix"
    assert loop.evaluate(model, TEST, CPU) == closing["accuracy"]
    recipe = read_lines(plan.record)[0]["recipe"]
    assert (recipe["augmentation"], recipe["consistency_weight"], recipe["normalise"]) == ("augmix", 12.0, "half")


def test_without_a_setting_nothing_is_normalised(tmp_path):
    run = loop._Run(training(tmp_path))
    assert run.model.info["normalise"] == {"mean": [0.0] * 3, "std": [1.0] * 3}


def test_a_killed_training_with_augmix_ends_in_the_same_weights(tmp_path):
    recipe = {"epochs": 2, "augmentation": "augmix"}
    undisturbed, plan = training(tmp_path / "a", **recipe), training(tmp_path / "b", **recipe)
    train(undisturbed)
    with pytest.raises(KeyboardInterrupt):
        train(plan, progress=killed_after(1, KeyboardInterrupt))
    train(plan)
    assert plan.weights.read_bytes() == undisturbed.weights.read_bytes()


def test_augmix_answers_the_image_and_two_mixtures_of_the_same_crop(tmp_path):
    run = loop._Run(training(tmp_path, augmentation="augmix"))
    before = run.generator.get_state()
    steps = list(run._views((torch.arange(5), torch.arange(5, 8))))
    assert [step.shape for step in steps] == [(15, 3, 16, 16), (9, 3, 16, 16)]
    run.generator.set_state(before)
    cropped = loop.crop_and_flip(run.images[:8], run.generator, padding=1, flip=True)
    for views, expected in zip(steps, cropped.split((5, 3)), strict=True):
        plain, first, second = views.split(len(expected))
        assert torch.equal(plain, expected.float() / 255)
        assert not torch.equal(first, plain)
        assert not torch.equal(first, second)


@pytest.mark.parametrize("augmentation", ["crop_flip", "augmix"])
def test_views_made_for_many_steps_at_once_go_with_their_labels(tmp_path, monkeypatch, augmentation):
    monkeypatch.setattr(loop._Run, "chunk_steps", 2)
    run = loop._Run(training(tmp_path, augmentation=augmentation))
    order = torch.randperm(48, generator=torch.Generator().manual_seed(3))
    found = list(run._load(order.split(10)))
    views = 3 if augmentation == "augmix" else 1
    assert [(len(images), len(labels)) for images, labels in found] == [(10 * views, 10)] * 4 + [(8 * views, 8)]
    assert torch.equal(torch.cat([labels for _, labels in found]), run.labels[order])
    for images, labels in found:
        pixels = images[: len(labels)].float()
        brighter_below = pixels[:, :, 8:].mean((1, 2, 3)) > pixels[:, :, :8].mean((1, 2, 3))
        assert torch.equal(brighter_below.long(), labels)


def test_a_training_with_many_steps_at_once_ends_in_the_same_weights_after_a_kill(tmp_path, monkeypatch):
    monkeypatch.setattr(loop._Run, "chunk_steps", 2)
    recipe = {"epochs": 2, "augmentation": "augmix"}
    undisturbed, plan = training(tmp_path / "a", **recipe), training(tmp_path / "b", **recipe)
    train(undisturbed)
    with pytest.raises(KeyboardInterrupt):
        train(plan, progress=killed_after(1, KeyboardInterrupt))
    train(plan)
    assert plan.weights.read_bytes() == undisturbed.weights.read_bytes()


@pytest.mark.parametrize(
    ("recipe", "shape", "steps"),
    [
        ({"augmentation": "augmix", "batch_size": 128}, (9, 3, 32, 32), 32),
        ({"augmentation": "crop_flip", "batch_size": 128}, (9, 3, 32, 32), 64),
        ({"augmentation": "augmix", "batch_size": 64}, (9, 3, 224, 224), 1),
    ],
)
def test_a_gpu_augments_as_many_images_at_once_as_their_size_allows(tmp_path, recipe, shape, steps):
    run = loop._Run(training(tmp_path, **recipe))
    run.images = torch.zeros((), dtype=torch.uint8).expand(shape)
    assert run.chunk_steps == 1
    run.device = torch.device("cuda")
    assert run.chunk_steps == steps


def test_only_batches_of_the_usual_size_are_compiled(tmp_path):
    run = loop._Run(training(tmp_path, batch_size=20))
    seen = []
    run.loss_of = lambda model, images, *rest: seen.append(len(images)) or loop.loss_of(model, images, *rest)
    line = run.next_epoch()
    assert seen == [20, 20]
    assert line["loss"] > 0


def test_the_compiler_is_told_that_sizes_stay(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, **options: (function, options))
    assert loop._maybe_compiled(len, "yes", CPU) == (len, {"dynamic": False})
    assert loop._maybe_compiled(len, "auto", torch.device("cuda")) == (len, {"dynamic": False})
    assert loop._maybe_compiled(len, "auto", CPU) is len
    assert loop._maybe_compiled(len, "no", torch.device("cuda")) is len


class OnThisMachine:
    """A replay on a CPU: steps as written, counted."""

    def __init__(self, step, device, *, must):
        self.step, self.must, self.shapes = step, must, []

    def on_stream(self):
        return contextlib.nullcontext()

    def __call__(self, images, labels):
        self.shapes.append(tuple(images.shape))
        return self.step(images, labels)


def test_a_captured_training_reads_its_rate_from_the_device_and_goes_on_after_a_kill(tmp_path, monkeypatch):
    def captured(plan):
        run = loop._Run(plan)
        run.replay, run.rate_on_device = OnThisMachine(run._learn, CPU, must=False), torch.zeros(())
        return run

    run = captured(training(tmp_path, capture="auto"))
    rate = run.rate_on_device
    plain = loop._Run(training(tmp_path))
    for _ in range(2):
        assert run.next_epoch()["loss"] == pytest.approx(plain.next_epoch()["loss"], rel=1e-4)
    assert run.replay.shapes == [(16, 3, 16, 16)] * 6
    assert run.optimizer.param_groups[0]["lr"] is rate
    loop.save_checkpoint(run.last_whole, run.training.checkpoint)
    again = captured(run.training)
    assert again.epoch == 2
    assert again.next_epoch()["loss"] == run.next_epoch()["loss"]
    assert again.optimizer.param_groups[0]["lr"] is again.rate_on_device
    for value, other in zip(again.model.state_dict().values(), run.model.state_dict().values(), strict=True):
        assert torch.equal(value, other)


@pytest.mark.parametrize("capture", ["auto", "on"])
def test_a_cpu_captures_nothing(tmp_path, capture):
    run = loop._Run(training(tmp_path, capture=capture))
    assert run.replay is None
    assert run.rate_on_device is None


def test_checkpoints_take_a_small_share_of_the_time(tmp_path, monkeypatch):
    saved = []
    run = loop._Run(training(tmp_path, epochs=9))
    monkeypatch.setattr(loop._Run, "save", lambda self, record: saved.append(self.epoch))
    run.epoch, now = 1, run.saved_at
    for run.saving_seconds, after, expected in ((0.1, 29, 0), (0.1, 31, 1), (2.0, 99, 0), (2.0, 101, 1)):
        monkeypatch.setattr(loop.time, "monotonic", lambda after=after: now + after)
        saved.clear()
        run.maybe_save(None)
        assert len(saved) == expected, (run.saving_seconds, after)


def test_a_cpu_trains_uncompiled_and_with_the_plain_optimizer(tmp_path):
    run = loop._Run(training(tmp_path))
    assert run.loss_of is loop.loss_of
    assert run.optimizer.defaults["fused"] is None


def test_an_unknown_network_writes_nothing(tmp_path):
    plan = Training("wrn_1O_1", TRAIN, TEST, Recipe(), tmp_path / "net.safetensors", CPU)
    with pytest.raises(UsageError, match="Unknown model 'wrn_1O_1'"):
        train(plan)
    assert os.listdir(tmp_path) == []


def test_the_record_is_json_to_the_last_digit(tmp_path):
    plan = training(tmp_path, epochs=1)
    train(plan)
    for line in plan.record.read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)
