"""Tests of driftlaw.records.tuning_file."""

import os

import pytest

from driftlaw.errors import DataError
from driftlaw.records.tuning_file import read_tuning


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
