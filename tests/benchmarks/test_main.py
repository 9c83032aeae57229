"""``driftlaw bench corruptions``, called as a user calls it."""

import json

import pytest
from typer.testing import CliRunner

from benchmarks import corruptions as bench
from benchmarks.__main__ import app
from driftlaw.errors import UsageError


@pytest.fixture(autouse=True)
def _one_pass(monkeypatch):
    def once(work, count, device, at_least=0.0):
        work()
        return 1000.0 * count

    monkeypatch.setattr(bench, "_per_second", once)


def call(*arguments):
    result = CliRunner().invoke(app, ["corruptions", "--threads", "1", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


def test_a_table_names_every_corruption_and_the_ratio():
    lines = call("--images", "2").splitlines()
    assert len(lines) == 1 + 15 + 2
    assert lines[-2].startswith("all fifteen")
    assert lines[-2].endswith("×")


def test_the_record_is_one_json_document_on_stdout_and_in_the_file(tmp_path):
    document = json.loads(call("--images", "2", "--full", "--json", "--out", str(tmp_path / "deep" / "record.json")))
    assert document["images"] == 2 * 15 * 5
    assert json.loads((tmp_path / "deep" / "record.json").read_text()) == document


def test_wrong_numbers_are_told_all_at_once():
    with pytest.raises(UsageError) as told:
        call("--images", "0", "--severity", "9")
    assert "--images" in str(told.value)
    assert "--severity" in str(told.value)
