"""``driftlaw check``."""

import json

import pytest
import typer
from typer.testing import CliRunner

from driftlaw.cli.check import check
from driftlaw.errors import UsageError
from driftlaw.testing import CHECKS

app = typer.Typer()
app.command()(check)

METHOD = """
import torch
from driftlaw.base import Adapter, StepOutput

print("hello from a user's file")


class Mine(Adapter, name="mine"):
    title = "Mine"

    def update(self, images, plan):
        return StepOutput(self.model(images) + NOISE)
"""


def invoke(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_conforming_method_exits_with_0(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(METHOD.replace("NOISE", "0"))
    result = invoke(path)
    assert result.exit_code == 0, result.output
    assert f"mine: {len(CHECKS)} of {len(CHECKS)} checks passed" in result.stdout
    assert "reset restores initial state" in result.stdout


def test_broken_method_exits_with_1_and_json_is_one_document(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(METHOD.replace("NOISE", "torch.rand(())"))
    result = invoke(path, "--json")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert "hello" in result.stderr
    assert document["method"] == "mine"
    assert document["passed"] is False
    checks = {entry["name"]: entry for entry in document["checks"]}
    assert len(checks) == len(CHECKS)
    failed = checks["seed_determines_result"]
    assert not failed["passed"]
    assert "self.generator" in failed["reason"]
    assert failed["description"].startswith("The same seed")
    assert checks["leaves_no_gradients"]["passed"]


def test_only_selects_checks():
    result = invoke("source", "--only", "supports_float64, seed_determines_result", "--json")
    assert [entry["name"] for entry in json.loads(result.stdout)["checks"]] == [
        "seed_determines_result",
        "supports_float64",
    ]


@pytest.mark.parametrize("assignment", ["learning_rate=0.5", "tent.learning_rate=0.5"])
def test_settings_are_passed_to_the_method(assignment, monkeypatch):
    given = []
    monkeypatch.setattr(
        "driftlaw.testing.check_method", lambda kind, settings, only: given.append((kind.name, settings, only)) or []
    )
    assert invoke("tent", "--set", assignment).exit_code == 0
    assert given == [("tent", {"learning_rate": 0.5}, [])]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["lav"], "Did you mean 'law'"),
        (["missing.py"], "missing.py is not a file"),
        (["law", "--set", "tauu=1"], "Did you mean 'tau'"),
        (["law", "--set", "tau"], "expected key=value"),
        (["law", "--only", "seed_determines_resul"], "Did you mean 'seed_determines_result'"),
    ],
)
def test_invalid_use_is_a_usage_error(words, message):
    result = invoke(*words)
    assert isinstance(result.exception, UsageError)
    assert message in str(result.exception)


def test_help_and_command_say_that_the_file_is_executed(tmp_path):
    assert "The code in FILE is executed" in invoke("--help").stdout
    path = tmp_path / "mine.py"
    path.write_text("raise SystemError('ran')")
    result = invoke(path)
    assert f"The code in {path} is executed. Check only files that you trust." in result.stderr.replace("\n", "")
    assert "is executed" not in invoke("tent", "--only", "seed_determines_result").stderr
