"""`driftlaw list`."""

import json

import pytest
from typer.testing import CliRunner

import driftlaw
from driftlaw.cli import app
from driftlaw.cli.list import KINDS
from driftlaw.datasets import list_datasets
from driftlaw.errors import UsageError
from driftlaw.models import build_model, list_models, save_model
from driftlaw.settings import list_presets


def list_output(*words):
    """Return the standard output of `driftlaw list`; errors are raised."""
    result = CliRunner().invoke(app, ["list", *words], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def names(kind):
    return [entry["name"] for entry in json.loads(list_output(kind, "--json"))]


def test_names_are_those_of_the_library():
    assert names("methods") == driftlaw.list_methods()
    assert names("models") == [info.name for info in list_models()]
    assert names("datasets") == [info.name for info in list_datasets()]
    assert names("corruptions") == driftlaw.list_corruptions("all")
    assert names("presets") == list_presets()


@pytest.mark.parametrize("kind", list(KINDS))
def test_every_entry_has_a_name_and_a_title(kind):
    for entry in json.loads(list_output(kind, "--json")):
        assert entry["name"]
        assert entry["title"]


def test_weights_in_the_data_directory_are_listed(tmp_path, monkeypatch):
    monkeypatch.setenv("DRIFTLAW_DATA", str(tmp_path))
    save_model(build_model("wrn_10_1", num_classes=3), tmp_path / "weights" / "my_own.safetensors")
    assert "my_own" in names("weights")


def test_methods_have_their_metadata():
    methods = {entry["name"]: entry for entry in json.loads(list_output("methods", "--json"))}
    assert methods["source"]["adapts"] == "nothing"
    assert methods["law"]["needs_source"] is False
    assert "tau" in json.dumps(methods["law"])


def test_json_without_a_kind_is_one_document():
    document = json.loads(list_output("--json"))
    assert list(document) == list(KINDS)
    assert {"name", "title"} <= set(document["methods"][0])


def test_table_contains_every_kind(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    text = list_output()
    for word in (*KINDS, "law", "wrn_28_10", "cifar10-embedded", "jpeg_compression", "embedded"):
        assert word in text
    assert "fog" not in list_output("methods")


def test_unknown_kind_suggests_the_closest():
    with pytest.raises(UsageError, match=r"Unknown kind 'method'\. Did you mean 'methods'"):
        list_output("method")


def test_file_names_are_no_markup_and_control_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("DRIFTLAW_DATA", str(tmp_path))
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "[bold]net\x1b[2J.safetensors").touch()
    shown = list_output("weights")
    assert "[bold]net\\u001b[2J" in shown
    assert "\x1b" not in shown
