"""Tests of driftlaw.records.tuning_file."""

import os

import pytest

from driftlaw.errors import DataError, UsageError
from driftlaw.records.tuning_file import TUNING_FORMAT, check_same_weights, read_tuning, write_tuning

MODEL = {"weights": "wrn_10_1", "sha256": "a" * 64}
DOCUMENT = {"format": TUNING_FORMAT, "method": "law", "settings": {"tau": 1.0}, "model": MODEL}


def test_document_is_read_back(tmp_path):
    write_tuning(DOCUMENT, tmp_path / "new" / "a.json")
    assert read_tuning(tmp_path / "new" / "a.json") == DOCUMENT


def test_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "a.json")
    with pytest.raises(DataError, match="is not a regular file"):
        read_tuning(tmp_path / "a.json")


@pytest.mark.parametrize("text", ["{", "[]", "[" * 100_000, '{"format": "other"}'])
def test_other_files_are_not_tuning_files(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    for name in ("a.json", "none.json"):
        with pytest.raises(DataError, match="driftlaw tune"):
            read_tuning(tmp_path / name)
    check_same_weights(tmp_path / "a.json", "b" * 64)


def test_other_weights_are_refused(tmp_path):
    write_tuning(DOCUMENT, tmp_path / "a.json")
    check_same_weights(tmp_path / "a.json", "a" * 64)
    with pytest.raises(UsageError, match=r"other weights \(wrn_10_1, sha256 aaaaaaaa; now bbbbbbbb\)"):
        check_same_weights(tmp_path / "a.json", "b" * 64)


@pytest.mark.parametrize("model", [{"sha256": 3}, {"sha256": ["a"]}, {"sha256": "c" * 64}], ids=str)
def test_other_weights_are_noticed_if_the_table_of_the_model_is_damaged(tmp_path, model):
    write_tuning({"settings": {}, "method": "law", "model": model}, tmp_path / "a.json")
    with pytest.raises(UsageError, match="other weights"):
        check_same_weights(tmp_path / "a.json", "b" * 64)
