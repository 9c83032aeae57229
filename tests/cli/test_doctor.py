"""``driftlaw doctor``."""

from __future__ import annotations

import json
import sys

import pytest
from typer.testing import CliRunner

from driftlaw import hardware
from driftlaw.cli import app
from driftlaw.execution import compile as compilation


@pytest.fixture
def machine(monkeypatch):
    """Set what the machine supports, without starting the processes that find it out."""

    def configure(*, supports_bf16, has_compiler):
        monkeypatch.setattr(hardware, "supports_bf16", lambda device: supports_bf16)
        monkeypatch.setattr(compilation, "has_cpp_compiler", lambda: has_compiler)

    return configure


@pytest.mark.parametrize(
    ("supported", "bf16", "compiler"),
    [(True, "supported", "installed"), (False, "not supported; float32 is used", "not found; on a CPU, compiled=true")],
)
def test_reports_versions_device_data_and_weights(machine, supported, bf16, compiler):
    machine(supports_bf16=supported, has_compiler=supported)
    findings = {
        entry["name"]: entry["found"] for entry in json.loads(CliRunner().invoke(app, ["doctor", "--json"]).stdout)
    }
    assert "torch" in findings["driftlaw"]
    assert findings["bf16 on cpu"] == bf16
    assert findings["C++ compiler"].startswith(compiler)
    assert "wrn_16_1-cifar10" in findings["weights"]
    assert {"device", "data folder", "torchvision", "timm", "transformers"} <= set(findings)


def test_package_that_cannot_be_imported_is_reported(machine, monkeypatch):
    machine(supports_bf16=False, has_compiler=False)
    monkeypatch.setitem(sys.modules, "torchvision", None)  # import then raises ImportError
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 0
    assert "torchvision   cannot be imported" in result.stdout
