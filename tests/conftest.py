"""Fixtures for all tests: one thread per process, and a separate data directory and registry of methods per test."""

import gc
import signal
import sys
from pathlib import Path

import pytest
import torch

from driftlaw.methods import registered_methods

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # makes tests.reference importable
torch.set_num_threads(1)  # parallel test workers share the cores
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for commands in the background


def pytest_collection_finish():
    """Exclude the collected tests and imported modules from garbage collection, which then takes much less time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _separate_data_dir(tmp_path_factory, monkeypatch):
    """Keep every test away from the user's data directory."""
    monkeypatch.setenv("DRIFTLAW_DATA", str(tmp_path_factory.mktemp("data")))


@pytest.fixture(autouse=True)
def _separate_registry(monkeypatch):
    """Forget the methods that a test defines."""
    monkeypatch.setattr("driftlaw.base.registry._methods", dict(registered_methods()))


@pytest.fixture(autouse=True)
def _restore_thread_count():
    """Restore the number of threads after every test, also after a failed one."""
    before = torch.get_num_threads()
    yield
    if torch.get_num_threads() != before:
        torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _every_batch_is_full(request, monkeypatch):
    """Let methods update on every batch, because tests use few images. Tests of small batches are marked."""
    if "small_batches" not in request.keywords:
        monkeypatch.setattr("driftlaw.base.small_batches.FULL_BATCH", 1)


@pytest.fixture
def two_threads(_restore_thread_count):
    """Let torch use two threads, so that a step on a CPU can run two passes in parallel."""
    torch.set_num_threads(2)
