"""Tests of benchmarks.tune.files."""

import pytest

from benchmarks.tune.files import check_same_weights, write_tuning
from driftlaw.errors import UsageError
from driftlaw.records.tuning_file import TUNING_FORMAT, read_tuning

MODEL = {"weights": "wrn_10_1", "sha256": "a" * 64}
DOCUMENT = {"format": TUNING_FORMAT, "method": "law", "settings": {"tau": 1.0}, "model": MODEL}


def test_document_is_read_back(tmp_path):
    write_tuning(DOCUMENT, tmp_path / "new" / "a.json")
    assert read_tuning(tmp_path / "new" / "a.json") == DOCUMENT


def test_other_files_may_be_overwritten(tmp_path):
    (tmp_path / "a.json").write_text("[]")
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
