"""Tests of driftlaw.records.validation."""

from dataclasses import replace
from pathlib import Path

import pytest

from driftlaw.errors import DataError
from driftlaw.records import validate_record
from tests.reports.example_records import make_record


def test_valid_record_is_returned():
    record = make_record()
    assert validate_record(record) is record


def test_missing_fields_are_reported():
    record = make_record(path=Path("x.jsonl"))
    del record.header["settings"], record.batches[3]["timing"]
    with pytest.raises(DataError, match=r"x\.jsonl is damaged: .*'settings'.*batch 3 has no 'timing\.seconds'"):
        validate_record(record)


def test_closing_line_must_agree_with_batches():
    record = make_record()
    with pytest.raises(DataError, match="closing line has a mean error of 3"):
        validate_record(replace(record, closing={**record.closing, "mean_error": 3.0}))
    with pytest.raises(DataError, match="closing line after 29 of 30"):
        validate_record(replace(record, batches=record.batches[:-1]))


def test_batch_must_have_images():
    record = make_record()
    record.batches[0]["images"] = 0
    with pytest.raises(DataError, match="batch 0 has no images"):
        validate_record(record)
