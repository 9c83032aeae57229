"""Training loop: results, record, resuming, precision and capture."""

import dataclasses
import json
import os
import signal

import pytest
import torch

import benchmarks.precision
from benchmarks.train import Recipe, Training, loop, train
from driftlaw.errors import DataError, UsageError
from driftlaw.files import sha256_of
from driftlaw.models import load_model, weights_sha256
from driftlaw.records import read_lines
from tests.benchmarks.train.synthetic import CPU, TEST, TRAIN, make_training


def without_timing(path):
    return [
        {key: value for key, value in line.items() if key not in ("timing", "command", "commit")}
        for line in read_lines(path)
    ]


def test_a_small_training_learns_and_writes_weights_and_record(tmp_path):
    lines = []
    training = make_training(tmp_path, command="python -m benchmarks train")
    closing = train(training, progress=lines.append)
    assert closing["accuracy"] > 90
    assert sorted(os.listdir(tmp_path)) == ["net.safetensors", "net.train.jsonl"]
    header, *epochs, last = read_lines(training.record)
    assert header["format"] == "driftlaw-train-1"
    assert (header["model"], header["seed"], header["command"]) == ("wrn_10_1", 0, "python -m benchmarks train")
    assert header["dataset"] == TRAIN.metadata()
    assert header["recipe"] == training.recipe.model_dump(mode="json")
    assert header["precision"] == "float32"
    assert [line["epoch"] for line in epochs] == [1, 2, 3]
    assert epochs == lines
    assert epochs[-1]["loss"] < epochs[0]["loss"] / 2
    assert epochs[0]["learning_rate"] == 0.05
    assert last == closing
    assert closing["test"] == TEST.metadata()
    model = load_model(training.weights, num_classes=2)
    assert closing["weights_sha256"] == weights_sha256(model)
    assert closing["file_sha256"] == sha256_of(training.weights)
    assert model.info["accuracy"] == closing["accuracy"]
    assert model.info["dataset"] == "train"


def test_the_accuracy_is_that_of_the_written_weights(tmp_path):
    training = make_training(tmp_path, epochs=1)
    closing = train(training)
    model = load_model(training.weights)
    images = torch.from_numpy(TEST.images(range(20))).permute(0, 3, 1, 2).float() / 255
    correct = int((model(images).argmax(1).numpy() == TEST.labels).sum())
    assert closing["accuracy"] == pytest.approx(100 * correct / 20)
    assert loop.evaluate(model, TEST, CPU) == closing["accuracy"]


def test_only_the_seed_determines_the_weights(tmp_path):
    torch.manual_seed(5)
    one = train(make_training(tmp_path / "one", epochs=1))
    torch.manual_seed(6)
    before = torch.get_rng_state()
    two = train(make_training(tmp_path / "two", epochs=1))
    assert torch.equal(torch.get_rng_state(), before)
    other = train(make_training(tmp_path / "other", epochs=1, seed=1))
    assert one["file_sha256"] == two["file_sha256"]
    assert one["weights_sha256"] != other["weights_sha256"]


class Killed(Exception):
    """Plays a kill: the loop does not handle it, so nothing is saved."""


def raise_after(epoch, error):
    def progress(line):
        if line["epoch"] == epoch:
            raise error

    return progress


@pytest.mark.parametrize("epoch", [1, 2, 3])
def test_a_killed_training_resumes_and_ends_with_the_same_weights_and_record(tmp_path, monkeypatch, epoch):
    complete = make_training(tmp_path / "a")
    train(complete)
    monkeypatch.setattr(loop, "MAX_SAVING_SHARE", float("inf"))
    training, epochs = dataclasses.replace(make_training(tmp_path / "b"), checkpoint_seconds=-1.0), []
    with pytest.raises(Killed):
        train(training, progress=raise_after(epoch, Killed))
    assert not training.weights.exists()
    assert training.checkpoint.exists() == (epoch > 1)
    train(training, progress=lambda line: epochs.append(line["epoch"]))
    assert epochs == list(range(epoch, 4))
    assert training.weights.read_bytes() == complete.weights.read_bytes()
    assert without_timing(training.record) == without_timing(complete.record)
    assert not training.checkpoint.exists()


@pytest.mark.parametrize("steps_per_chunk", [1, 2])
def test_an_interrupted_training_with_augmix_ends_with_the_same_weights(tmp_path, monkeypatch, steps_per_chunk):
    run_init = loop._TrainingRun.__init__

    def init(self, training):
        run_init(self, training)
        self.batches.steps_per_chunk = steps_per_chunk

    monkeypatch.setattr(loop._TrainingRun, "__init__", init)
    recipe = {"epochs": 2, "augmentation": "augmix"}
    complete, training = make_training(tmp_path / "a", **recipe), make_training(tmp_path / "b", **recipe)
    train(complete)
    with pytest.raises(KeyboardInterrupt):
        train(training, progress=raise_after(1, KeyboardInterrupt))
    train(training)
    assert training.weights.read_bytes() == complete.weights.read_bytes()


@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_a_signal_saves_the_last_complete_epoch(tmp_path, number, error):
    complete, training, epochs = make_training(tmp_path / "a"), make_training(tmp_path / "b"), []
    train(complete)
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(error):
        train(training, progress=lambda line: line["epoch"] == 2 and signal.raise_signal(number))
    assert signal.getsignal(signal.SIGTERM) is handler
    train(training, progress=lambda line: epochs.append(line["epoch"]))
    assert epochs == [3]
    assert training.weights.read_bytes() == complete.weights.read_bytes()


def test_an_interrupt_in_the_middle_of_an_epoch_loses_only_that_epoch(tmp_path, monkeypatch):
    complete, training = make_training(tmp_path / "a"), make_training(tmp_path / "b")
    train(complete)
    epochs, step_method = [], loop._TrainingRun._step

    def step(self, images, labels, epoch):
        epochs.append(epoch)
        if len(epochs) == 5:  # the second of three steps of the second epoch
            raise KeyboardInterrupt
        return step_method(self, images, labels, epoch)

    monkeypatch.setattr(loop._TrainingRun, "_step", step)
    with pytest.raises(KeyboardInterrupt):
        train(training)
    assert len(read_lines(training.record)) == 2
    train(training)
    assert training.weights.read_bytes() == complete.weights.read_bytes()


def interrupted_training(tmp_path, **recipe):
    training = make_training(tmp_path, **recipe)
    with pytest.raises(KeyboardInterrupt):
        train(training, progress=raise_after(1, KeyboardInterrupt))
    return training


def test_the_checkpoint_of_a_different_training_is_refused_and_kept(tmp_path):
    training = interrupted_training(tmp_path)
    record, checkpoint = training.record.read_bytes(), training.checkpoint.read_bytes()
    for other in (make_training(tmp_path, weight_decay=0.1), make_training(tmp_path, seed=1)):
        with pytest.raises(DataError, match=r"net\.checkpoint\.pt was written by a different training .*delete the"):
            train(other)
    assert training.record.read_bytes() == record
    assert training.checkpoint.read_bytes() == checkpoint


def test_a_checkpoint_is_refused_if_the_lines_before_it_were_changed(tmp_path):
    training = interrupted_training(tmp_path)
    training.record.write_bytes(training.record.read_bytes().replace(b'"loss":', b'"loss":1', 1))
    record, checkpoint = training.record.read_bytes(), training.checkpoint.read_bytes()
    with pytest.raises(DataError, match=r"net\.checkpoint\.pt does not belong to .*net\.train\.jsonl"):
        train(training)
    assert (training.record.read_bytes(), training.checkpoint.read_bytes()) == (record, checkpoint)


def test_temporary_files_of_a_killed_training_are_deleted(tmp_path):
    training = interrupted_training(tmp_path)
    for name in (".net.checkpoint.a1b2c3d4.part.pt", ".net.a1b2c3d4.part.safetensors", ".mine.part.pt"):
        (tmp_path / name).write_bytes(b"half")
    train(training)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name[0] == ".") == [".mine.part.pt"]


def test_another_commit_or_command_may_resume(tmp_path, monkeypatch):
    interrupted_training(tmp_path)
    monkeypatch.setenv("DRIFTLAW_COMMIT", "another")
    assert train(make_training(tmp_path, command="another command"))["closing"]


def test_a_damaged_checkpoint_is_reported(tmp_path):
    training = interrupted_training(tmp_path)
    training.checkpoint.write_bytes(training.checkpoint.read_bytes()[:1000])
    with pytest.raises(DataError, match=r"net\.checkpoint\.pt is damaged .*Delete it to start from the beginning"):
        train(training)


def test_a_checkpoint_without_its_record_is_reported(tmp_path):
    training = interrupted_training(tmp_path)
    training.record.unlink()
    with pytest.raises(DataError, match=r"net\.train\.jsonl"):
        train(training)


def test_a_loss_that_is_not_finite_stops_the_training(tmp_path):
    training = make_training(tmp_path, learning_rate=1e30, warmup_epochs=0)
    with pytest.raises(DataError, match=r"The loss became nan in epoch 1, at .* up to 1e\+30\. .*learning_rate=…"):
        train(training)
    assert not training.weights.exists()


def test_weight_decay_applies_to_all_parameters(tmp_path):
    run = loop._TrainingRun(make_training(tmp_path, weight_decay=0.01))
    before = {name: value.detach().clone() for name, value in run.model.named_parameters()}
    for value in run.model.parameters():
        value.grad = torch.zeros_like(value)
    run.optimizer.step()
    for name, value in run.model.named_parameters():
        # the first step with Nesterov momentum is 1.9 times the gradient
        torch.testing.assert_close(value.detach(), before[name] * (1 - 0.05 * 0.01 * 1.9), msg=name)


def test_the_learning_rate_follows_the_schedule(tmp_path, monkeypatch):
    run = loop._TrainingRun(make_training(tmp_path, epochs=4))
    rates, step = [], run.optimizer.step
    monkeypatch.setattr(run.optimizer, "step", lambda: rates.append(run.optimizer.param_groups[0]["lr"]) or step())
    run.train_epoch()
    assert rates == pytest.approx([0, 0.05 / 3, 0.05 * 2 / 3])


def test_bf16_falls_back_to_float32_if_the_device_does_not_support_it(tmp_path, monkeypatch):
    monkeypatch.setattr(benchmarks.precision, "supports_bf16", lambda device: False)
    training = make_training(tmp_path, epochs=1, precision="bf16")
    train(training)
    assert read_lines(training.record)[0]["precision"] == "float32"


def test_weights_are_float32_in_any_precision(tmp_path, monkeypatch):
    monkeypatch.setattr(benchmarks.precision, "supports_bf16", lambda device: True)
    autocast = []
    run = loop._TrainingRun(make_training(tmp_path, epochs=1, precision="bf16"))

    def loss(model, images, labels, consistency_weight):
        autocast.append(torch.is_autocast_enabled("cpu"))
        with torch.autocast("cpu", enabled=False):  # not every CPU has convolutions in bf16
            return loop.training_loss(model, images, labels, consistency_weight)

    run.loss = loss
    run.train_epoch()
    assert set(autocast) == {True}
    assert {value.dtype for value in run.model.parameters()} == {torch.float32}


@pytest.mark.parametrize("seed", [0, 1])
def test_a_small_training_with_augmix_learns_and_stores_its_normalization(tmp_path, seed):
    training = make_training(tmp_path, seed=seed, epochs=4, augmentation="augmix", normalise="half")
    closing = train(training)
    assert closing["accuracy"] > 85
    model = load_model(training.weights)
    assert model.info["normalise"] == {"mean": [0.5] * 3, "std": [0.5] * 3}
    assert model.info["augmentation"] == "augmix"
    assert loop.evaluate(model, TEST, CPU) == closing["accuracy"]
    recipe = read_lines(training.record)[0]["recipe"]
    assert (recipe["augmentation"], recipe["consistency_weight"], recipe["normalise"]) == ("augmix", 12.0, "half")


def test_the_input_is_not_normalized_by_default(tmp_path):
    run = loop._TrainingRun(make_training(tmp_path))
    assert run.model.info["normalise"] == {"mean": [0.0] * 3, "std": [1.0] * 3}


def test_only_batches_of_the_full_size_are_compiled(tmp_path):
    run = loop._TrainingRun(make_training(tmp_path, batch_size=20))
    sizes = []
    run.loss = lambda model, images, *rest: sizes.append(len(images)) or loop.training_loss(model, images, *rest)
    line = run.train_epoch()
    assert sizes == [20, 20]
    assert line["loss"] > 0


@pytest.mark.parametrize(
    ("after", "saving_seconds", "due"), [(29, 0.1, False), (31, 0.1, True), (99, 2, False), (101, 2, True)]
)
def test_checkpoints_take_a_small_share_of_the_time(after, saving_seconds, due):
    assert loop.checkpoint_due(after, saving_seconds) is due


def test_a_cpu_trains_without_compilation_capture_and_fused_optimizer(tmp_path):
    run = loop._TrainingRun(make_training(tmp_path, capture="on"))
    assert run.loss is loop.training_loss
    assert run.optimizer.defaults["fused"] is None
    assert run.device_rates == [None]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("compiled", ["no", "yes"])
def test_captured_steps_equal_eager_steps(tmp_path, compiled):
    recipe = {"batch_size": 10, "precision": "float32", "compiled": compiled}  # 4 full batches and one of 8 images
    gpu, losses, states = torch.device("cuda"), [], []
    for capture in ("off", "on"):
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True):
            run = loop._TrainingRun(make_training(tmp_path / capture, device=gpu, capture=capture, **recipe))
            losses.append([run.train_epoch()["loss"] for _ in range(3)])
            states.append(run.model.state_dict())
    assert len(run.graphs.graphs) == 1
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)
    for name, value in states[0].items():
        torch.testing.assert_close(states[1][name], value, rtol=1e-3, atol=1e-4, msg=name)


def test_an_unknown_model_writes_nothing(tmp_path):
    training = Training("wrn_1O_1", TRAIN, TEST, Recipe(), tmp_path / "net.safetensors", CPU)
    with pytest.raises(UsageError, match="Unknown model 'wrn_1O_1'"):
        train(training)
    assert os.listdir(tmp_path) == []


def test_the_record_is_strict_json(tmp_path):
    training = make_training(tmp_path, epochs=1)
    train(training)
    for line in training.record.read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)
