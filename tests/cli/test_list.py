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


def listed(*words):
    """Return what went to stdout; errors that the command line would print are raised."""
    result = CliRunner().invoke(app, ["list", *words], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def names(kind):
    return [entry["name"] for entry in json.loads(listed(kind, "--json"))]


def test_every_kind_is_named_as_the_library_names_it():
    assert names("methods") == driftlaw.list_methods()
    assert names("models") == [info.name for info in list_models()]
    assert names("datasets") == [info.name for info in list_datasets()]
    assert names("corruptions") == driftlaw.list_corruptions("all")
    assert names("presets") == list_presets()


@pytest.mark.parametrize("kind", list(KINDS))
def test_every_entry_has_a_name_and_a_title(kind):
    for entry in json.loads(listed(kind, "--json")):
        assert entry["name"]
        assert entry["title"]


def test_weights_of_the_users_own_are_listed(tmp_path, monkeypatch):
    monkeypatch.setenv("DRIFTLAW_DATA", str(tmp_path))
    save_model(build_model("wrn_10_1", num_classes=3), tmp_path / "weights" / "my_own.safetensors")
    assert "my_own" in names("weights")


def test_a_method_says_what_it_needs_and_learns():
    methods = {entry["name"]: entry for entry in json.loads(listed("methods", "--json"))}
    assert methods["source"]["adapts"] == "nothing"
    assert methods["law"]["needs_source"] is False
    assert "tau" in json.dumps(methods["law"])


def test_all_kinds_come_together_in_one_document():
    document = json.loads(listed("--json"))
    assert list(document) == list(KINDS)
    assert {"name", "title"} <= set(document["methods"][0])


def test_people_get_a_table(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    text = listed()
    for word in (*KINDS, "law", "wrn_28_10", "cifar10-embedded", "jpeg_compression", "embedded"):
        assert word in text
    assert "fog" not in listed("methods")


def test_an_unknown_kind_names_its_neighbour():
    with pytest.raises(UsageError, match=r"Unknown kind of thing to list 'method'\. Did you mean 'methods'"):
        listed("method")
