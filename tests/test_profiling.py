"""What a step costs and what the machine can do."""

import json
import subprocess

import pytest
import torch
from torch import nn

from driftlaw import __version__
from driftlaw import hardware as processor
from driftlaw import profiling as probes
from driftlaw.errors import UsageError

CPU = torch.device("cpu")


def test_a_stopwatch_measures_what_runs_inside(monkeypatch):
    ticks = iter([10.0, 12.5])
    monkeypatch.setattr(probes.time, "perf_counter", lambda: next(ticks))
    with probes.timed(CPU) as watch:
        assert watch.seconds == 0.0
    assert watch.seconds == 2.5


def test_flops_are_two_a_multiply_add():
    images, layer = torch.rand(2, 3, 8, 8), torch.nn.Conv2d(3, 5, 3, padding=1)
    answer, flops = probes.count_flops(lambda: layer(images))
    assert answer.shape == (2, 5, 8, 8)
    assert flops == 2 * (2 * 8 * 8) * 5 * (3 * 3 * 3)


def test_the_backward_pass_is_counted_too():
    weight, images = torch.rand(5, 7, requires_grad=True), torch.rand(3, 7)
    _, flops = probes.count_flops(lambda: (images @ weight.T).sum().backward())
    assert flops == 2 * 2 * 3 * 5 * 7  # forward, and the gradient of the weight


def test_peak_memory_is_in_bytes():
    assert 50e6 < probes.peak_bytes(CPU) < 100e9


def test_auto_takes_a_gpu_where_there_is_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert probes.pick_device("auto") == CPU
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert probes.pick_device("auto") == torch.device("cuda")


@pytest.mark.parametrize("name", ["gpu", "", "cuda:99"])
def test_a_device_that_cannot_be_used_is_wrong_use(name, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(UsageError, match=f"device «{name}» cannot be used here .*take auto, cpu or cuda"):
        probes.pick_device(name)


def test_where_there_is_no_gpu_none_is_offered(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match=r"take auto or cpu$"):
        probes.pick_device("gpu")


def test_the_environment_is_plain_data_that_survives_json():
    found = probes.environment(CPU)
    assert json.loads(json.dumps(found)) == found
    assert found["driftlaw"] == __version__
    assert found["versions"]["torch"] == torch.__version__
    assert found["device"] == {"type": "cpu", "name": found["device"]["name"], "threads": torch.get_num_threads()}
    assert found["device"]["name"]
    assert type(found["versions"]["torch"]) is str


def git_answers(monkeypatch, *answers):
    told = iter(answers)

    def fake(command, **_):
        answer = next(told)
        if isinstance(answer, Exception):
            raise answer
        return subprocess.CompletedProcess(command, 0, stdout=answer + "\n")

    monkeypatch.setattr(probes.subprocess, "run", fake)
    return probes._commit.__wrapped__()


def test_a_changed_checkout_is_marked_with_a_plus(monkeypatch):
    here = str(probes.Path(probes.__file__).parent.parent)
    assert git_answers(monkeypatch, here, "abc123", "") == "abc123"
    assert git_answers(monkeypatch, here, "abc123", " M driftlaw/law.py") == "abc123+"


def test_there_is_no_commit_without_git_or_in_somebody_elses_checkout(monkeypatch):
    assert git_answers(monkeypatch, FileNotFoundError("git")) is None
    assert git_answers(monkeypatch, subprocess.CalledProcessError(128, "git")) is None
    assert git_answers(monkeypatch, "/somewhere/else", "abc123", "") is None


@pytest.mark.parametrize(
    ("wanted", "can", "precision"),
    [
        ("bf16", True, "bf16"),
        ("bf16", False, "float32"),
        ("float32", True, "float32"),
        ("auto", True, "float32"),
    ],
)
def test_bf16_is_used_on_a_cpu_only_where_asked_for_and_able(monkeypatch, wanted, can, precision):
    monkeypatch.setattr(probes, "can_train_in_bf16", lambda device: can)
    assert probes.usable_precision(wanted, CPU) == precision


@pytest.mark.parametrize(("can", "precision"), [(True, "bf16"), (False, "float32")])
def test_a_gpu_takes_bf16_by_itself_where_it_can(monkeypatch, can, precision):
    monkeypatch.setattr(probes, "can_train_in_bf16", lambda device: can)
    assert probes.usable_precision("auto", torch.device("cuda")) == precision


def test_a_cpu_that_dies_of_bf16_cannot_train_in_it(monkeypatch):
    monkeypatch.setattr(processor, "runs_bf16", lambda: False)
    assert probes.can_train_in_bf16(CPU) is False
    monkeypatch.setattr(processor, "runs_bf16", lambda: True)
    assert probes.can_train_in_bf16(CPU) is True


def test_input_is_laid_out_channels_last():
    images = torch.rand(2, 3, 8, 8)
    moved = probes.as_input(images, CPU)
    assert moved.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(moved, images)


def test_a_gpu_is_shared_where_others_hold_memory_on_it(monkeypatch):
    gpu, giga = torch.device("cuda"), 2**30
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 10 * giga)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (69 * giga, 80 * giga))
    assert not probes.shares_gpu(gpu)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (60 * giga, 80 * giga))
    assert probes.shares_gpu(gpu)
    assert not probes.shares_gpu(CPU)


@pytest.mark.parametrize("layer", [nn.Conv2d(8, 16, 3, groups=4), nn.Conv2d(8, 16, 3), nn.ConvTranspose2d(8, 16, 2)])
def test_a_backward_pass_of_a_convolution_costs_two_forward_passes_grouped_or_not(layer):
    images = torch.rand(2, 8, 6, 6, requires_grad=True)
    answer, forward = probes.count_flops(lambda: layer(images))
    _, backward = probes.count_flops(answer.sum().backward)
    assert backward == 2 * forward
    frozen = layer.requires_grad_(False)(images)
    assert probes.count_flops(frozen.sum().backward)[1] == forward
