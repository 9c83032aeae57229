from dataclasses import replace
from pathlib import Path

import pytest

from driftlaw.errors import DataError
from driftlaw.records.validation import sound
from tests.reports.example_records import make_record


def test_a_sound_record_is_handed_back():
    record = make_record()
    assert sound(record) is record


def test_a_record_without_its_fields_is_damaged():
    record = make_record(path=Path("x.jsonl"))
    del record.header["settings"], record.batches[3]["timing"]
    with pytest.raises(DataError, match=r"x\.jsonl is damaged: .*«settings».*batch 3 has no «timing\.seconds»"):
        sound(record)


def test_a_closing_line_that_does_not_fit_the_batches_is_damage():
    record = make_record()
    with pytest.raises(DataError, match="closing line says a mean error of 3"):
        sound(replace(record, closing={**record.closing, "mean_error": 3.0}))
    with pytest.raises(DataError, match="closed after 29 of 30"):
        sound(replace(record, batches=record.batches[:-1]))


def test_a_batch_without_images_is_damage():
    record = make_record()
    record.batches[0]["images"] = 0
    with pytest.raises(DataError, match="batch 0 holds no images"):
        sound(record)
