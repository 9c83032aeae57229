"""``driftlaw check``."""

import json

import pytest
import typer
from typer.testing import CliRunner

from driftlaw.base import registered_methods
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


@pytest.fixture(autouse=True)
def _registry_as_it_was():
    before = dict(registered_methods())
    yield
    registered_methods().clear()
    registered_methods().update(before)


def invoke(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_a_conforming_file_exits_with_0_and_says_so(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(METHOD.replace("NOISE", "0"))
    result = invoke(path)
    assert result.exit_code == 0, result.output
    assert f"mine: {len(CHECKS)} of {len(CHECKS)} checks passed" in result.stdout
    assert "reset equals fresh" in result.stdout


def test_a_broken_file_exits_with_1_and_json_is_one_document(tmp_path):
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
    failed = checks["the_seed_alone_decides"]
    assert not failed["passed"]
    assert "self.generator" in failed["reason"]
    assert failed["description"].startswith("The same seed")
    assert checks["no_stale_gradient_is_left_behind"]["passed"]


@pytest.mark.parametrize("assignment", ["learning_rate=0.5", "tent.learning_rate=0.5"])
def test_settings_are_those_of_the_method(assignment, monkeypatch):
    given = []
    monkeypatch.setattr(
        "driftlaw.testing.check_method", lambda kind, settings: given.append((kind.name, settings)) or []
    )
    assert invoke("tent", "--set", assignment).exit_code == 0
    assert given == [("tent", {"learning_rate": 0.5})]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["lav"], "Did you mean 'law'"),
        (["missing.py"], "no file at missing.py"),
        (["law", "--set", "tauu=1"], "Did you mean 'tau'"),
        (["law", "--set", "tau"], "expected key=value"),
    ],
)
def test_wrong_use_is_told(words, message):
    result = invoke(*words)
    assert isinstance(result.exception, UsageError)
    assert message in str(result.exception)
