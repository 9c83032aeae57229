"""The trial of bf16 in a child process."""

import platform
import subprocess
import sys

import pytest

from driftlaw import hardware as processor


def test_a_cpu_that_dies_in_the_trial_does_not_run_bf16(monkeypatch):
    monkeypatch.setattr(processor, "_BF16_TRIAL", "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    assert processor.runs_bf16.__wrapped__() is False
    monkeypatch.setattr(processor, "_BF16_TRIAL", "pass")
    assert processor.runs_bf16.__wrapped__() is True


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's own option")
def test_freed_memory_stays_where_it_was():
    """A block that is freed and asked for again costs no page fault; in a child, as the option is the process's."""
    trial = (
        "import resource, sys, ctypes\n"
        "from driftlaw.hardware import keep_freed_memory\n"
        "if sys.argv[1] == 'keep': assert keep_freed_memory()\n"
        "def touch(): ctypes.memset(ctypes.create_string_buffer(16 * 2**20), 1, 16 * 2**20)\n"
        "touch()\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "for _ in range(10): touch()\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)\n"
    )
    faults = [
        int(subprocess.run([sys.executable, "-c", trial, how], capture_output=True, text=True, check=True).stdout)
        for how in ("keep", "leave")
    ]
    assert faults[0] < faults[1] / 10
