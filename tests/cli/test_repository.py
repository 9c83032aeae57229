"""`driftlaw train` and `driftlaw tune`, which run `python -m benchmarks` in a clone."""

import sys

import pytest
from typer.testing import CliRunner

from driftlaw.cli import app
from driftlaw.errors import UsageError


def call(*words):
    return CliRunner().invoke(app, list(words), catch_exceptions=False)


def test_options_reach_the_command_of_the_repository(tmp_path):
    with pytest.raises(UsageError, match=r"Unknown setting 'epoch'\. Did you mean 'epochs'"):
        call("train", "--model", "wrn_10_1", "--set", "epoch=3", "--json", "--data-dir", str(tmp_path))


@pytest.mark.parametrize(("command", "option"), [("train", "--epochs"), ("tune", "--grid")])
def test_help_lists_the_options_of_the_command_of_the_repository(command, option):
    result = call(command, "--help")
    assert result.exit_code == 0
    assert option in result.stdout


@pytest.mark.parametrize("command", ["train", "tune"])
def test_outside_a_clone_the_error_names_the_command(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if "site-packages" in entry or "lib/python" in entry])
    for name in [name for name in sys.modules if name.partition(".")[0] == "benchmarks"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [finder for finder in sys.meta_path if "editable" not in repr(finder)])
    with pytest.raises(UsageError, match=f"part of the repository.* in a clone: `python -m benchmarks {command}`"):
        call(command, "--seeds", "1")


def test_the_commands_are_hidden():
    text = CliRunner().invoke(app, ["--help"]).stdout.replace("trained", "")
    assert "train" not in text
    assert "tune" not in text
