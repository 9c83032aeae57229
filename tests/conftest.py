"""What every test needs: one thread each, so that parallel workers do not fight over the cores."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # so that tests can import tests.reference
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _own_data_folder(tmp_path_factory, monkeypatch):
    """No test reads or writes the user's own data folder."""
    monkeypatch.setenv("DRIFTLAW_DATA", str(tmp_path_factory.mktemp("data")))


@pytest.fixture
def two_threads():
    """Inside, torch has two threads, so that a step on a CPU runs passes side by side."""
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)
