"""``driftlaw doctor``."""

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


def test_reports_versions_device_data_and_weights():
    findings = {
        entry["name"]: entry["found"] for entry in json.loads(CliRunner().invoke(app, ["doctor", "--json"]).stdout)
    }
    assert "torch" in findings["driftlaw"]
    assert findings["bf16 on cpu"] == "not supported; float32 is used"
    assert findings["C++ compiler"].startswith("not found; on a CPU, compiled=true")
    assert "wrn_16_1-cifar10" in findings["weights"]
    assert {"device", "data folder", "torchvision", "timm", "transformers"} <= set(findings)


def test_package_that_cannot_be_imported_is_reported(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)  # import then raises ImportError
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 0
    assert "torchvision   cannot be imported" in result.stdout
