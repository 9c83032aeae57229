"""Hardware: device choice, bf16 support, freed memory, and the environment of a record."""

import ctypes
import json
import os
import platform
import subprocess
import sys

import numpy as np
import pytest
import torch

from driftlaw import __version__, hardware
from driftlaw.errors import UsageError

CPU = torch.device("cpu")


def test_auto_is_a_gpu_if_there_is_one():
    assert hardware.pick_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("name", ["cuda:99"])
def test_an_unusable_device_is_refused(name):
    usable = "auto, cpu or cuda" if torch.cuda.is_available() else "auto or cpu"
    with pytest.raises(UsageError, match=rf"device '{name}' cannot be used on this machine \(.*\)\. Use {usable}\.$"):
        hardware.pick_device(name)


@pytest.mark.parametrize(("name", "hint"), [("gpu", "cuda"), ("GPU:1", "cuda"), ("cdua", "cuda"), ("cpuu", "cpu")])
def test_an_unknown_device_gets_a_suggestion(name, hint):
    with pytest.raises(
        UsageError, match=rf"^torch has no device '{name}'\. Did you mean '{hint}'\? This machine can use"
    ):
        hardware.pick_device(name)


def test_images_are_moved_in_channels_last_format():
    images = torch.rand(2, 3, 8, 8)
    moved = hardware.to_device(images, CPU)
    assert moved.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(moved, images)


def test_a_cpu_that_crashes_in_the_trial_does_not_run_bf16(monkeypatch):
    monkeypatch.setattr(hardware, "_BF16_TRIAL", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert hardware.runs_bf16.__wrapped__() is False
    monkeypatch.setattr(hardware, "_BF16_TRIAL", "pass")
    assert hardware.runs_bf16.__wrapped__() is True


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc" or not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="needs glibc 2.33"
)
@pytest.mark.parametrize(("keep", "in_heap"), [(True, True), (False, False)])
def test_large_blocks_come_from_the_heap_and_stay_there(keep, in_heap):
    """In a child process, because the option cannot be undone. glibc itself reports where its blocks are."""
    program = f"""
import ctypes
from driftlaw.hardware import keep_freed_memory

class Info(ctypes.Structure):
    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    _fields_ = [(name, ctypes.c_size_t) for name in names]

libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Info
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
if {keep}:
    assert keep_freed_memory()
before = libc.mallinfo2()
block = libc.malloc(16 * 2**20)
during = libc.mallinfo2()
libc.free(block)
after = libc.mallinfo2()
print(during.hblks - before.hblks, after.fordblks >= 16 * 2**20)
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.split() == (["0", "True"] if in_heap else ["1", "False"])


def test_the_environment_is_plain_data_that_survives_json(monkeypatch):
    monkeypatch.setenv("DRIFTLAW_COMMIT", "abc123")
    environment = hardware.environment(CPU)
    assert json.loads(json.dumps(environment)) == environment
    assert environment["driftlaw"] == __version__
    assert environment["commit"] == "abc123"
    assert environment["versions"]["torch"] == torch.__version__
    assert type(environment["versions"]["torch"]) is str
    name = environment["device"]["name"]
    assert environment["device"] == {"type": "cpu", "name": name, "threads": torch.get_num_threads()}
    assert name


@pytest.fixture
def checkout(tmp_path):
    """Return the package folder in a git repository with one commit."""
    package = tmp_path / "driftlaw"
    package.mkdir()
    (package / "law.py").write_text("tau = 0.6\n")
    git(tmp_path, "init")
    git(tmp_path, "add", ".")
    git(tmp_path, "-c", "user.name=test", "-c", "user.email=test@example.org", "commit", "-m", "First")
    return package


def git(folder, *arguments):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.strip()


def test_a_changed_checkout_is_marked_with_a_plus(checkout):
    commit = git(checkout, "rev-parse", "--short", "HEAD")
    assert hardware.checkout_commit.__wrapped__(checkout) == commit
    (checkout / "notes.txt").write_text("an untracked file changes nothing")
    assert hardware.checkout_commit.__wrapped__(checkout) == commit
    (checkout / "law.py").write_text("tau = 0.5\n")
    assert hardware.checkout_commit.__wrapped__(checkout) == commit + "+"


def test_there_is_no_commit_without_git_or_inside_another_projects_checkout(checkout, tmp_path_factory, monkeypatch):
    installed = checkout / "site-packages" / "driftlaw"
    installed.mkdir(parents=True)
    assert hardware.checkout_commit(installed) is None
    assert hardware.checkout_commit(tmp_path_factory.mktemp("no_repository")) is None
    monkeypatch.setenv("PATH", "")
    assert hardware.checkout_commit(checkout) is None


def test_load_average_is_that_of_one_minute(monkeypatch):
    monkeypatch.setattr(os, "getloadavg", lambda: (1.2345, 5.0, 9.0), raising=False)
    assert hardware.load_average() == 1.23
    monkeypatch.delattr(os, "getloadavg")
    assert hardware.load_average() is None


def test_a_device_that_is_an_array_is_refused():
    with pytest.raises(UsageError, match="cannot be used"):
        hardware.pick_device(np.array([1, 2]))
