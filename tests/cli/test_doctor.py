"""``driftlaw doctor`` tells what is there and survives what is not."""

from __future__ import annotations

import json
import sys

import pytest
from typer.testing import CliRunner

from driftlaw import hardware
from driftlaw.cli import app
from driftlaw.execution import compile as compilation


@pytest.fixture(autouse=True)
def _no_child_process(monkeypatch):
    monkeypatch.setattr(hardware, "supports_bf16", lambda device: False)
    monkeypatch.setattr(compilation, "has_cpp_compiler", lambda: False)


def test_it_names_versions_device_data_and_weights():
    found = {
        entry["name"]: entry["found"] for entry in json.loads(CliRunner().invoke(app, ["doctor", "--json"]).stdout)
    }
    assert "torch" in found["driftlaw"]
    assert found["bf16 on cpu"] == "does not run; float32 is used"
    assert found["C++ compiler"].startswith("none; on a CPU compiled = true runs")
    assert "wrn_16_1-cifar10" in found["weights"]
    assert {"device", "data folder", "torchvision", "timm", "transformers"} <= set(found)


def test_a_torchvision_that_cannot_be_imported_is_told_not_raised(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)  # import then raises ImportError
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 0
    assert "not usable" in result.stdout
