"""The trial of bf16 in a child process."""

from driftlaw import processor


def test_a_cpu_that_dies_in_the_trial_does_not_run_bf16(monkeypatch):
    monkeypatch.setattr(processor, "_BF16_TRIAL", "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    assert processor.runs_bf16.__wrapped__() is False
    monkeypatch.setattr(processor, "_BF16_TRIAL", "pass")
    assert processor.runs_bf16.__wrapped__() is True
