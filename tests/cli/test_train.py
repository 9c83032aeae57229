"""`driftlaw train`, which runs `python -m benchmarks train` in a clone."""

import sys

import pytest
from typer.testing import CliRunner

from driftlaw.cli import app
from driftlaw.errors import UsageError


def call(*words):
    return CliRunner().invoke(app, ["train", *words], catch_exceptions=False)


def test_options_reach_the_command_of_the_repository(tmp_path):
    with pytest.raises(UsageError, match=r"Unknown setting 'epoch'\. Did you mean 'epochs'"):
        call("--model", "wrn_10_1", "--set", "epoch=3", "--json", "--data-dir", str(tmp_path))


def test_help_lists_the_options_of_the_command_of_the_repository():
    result = call("--help")
    assert result.exit_code == 0
    assert "--epochs" in result.stdout


def test_outside_a_clone_the_error_names_the_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if "site-packages" in entry or "lib/python" in entry])
    for name in [name for name in sys.modules if name.partition(".")[0] == "benchmarks"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [finder for finder in sys.meta_path if "editable" not in repr(finder)])
    with pytest.raises(UsageError, match=r"part of the repository.*`python -m benchmarks train` in a clone"):
        call("--epochs", "1")


def test_the_command_is_hidden():
    assert "train" not in CliRunner().invoke(app, ["--help"]).stdout.replace("trained", "")
