"""Tests of driftlaw.records.read and driftlaw.records.schema."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from driftlaw.errors import DataError
from driftlaw.records import dump_line, find_records, read_record, validate_record
from driftlaw.records.jsonl import SHA256_KEY
from driftlaw.records.run_record import FORMAT
from tests.records.record_lines import CLOSING, HEADER, batch, write
from tests.reports.example_records import make_record


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz"])
def test_read_finished_record(tmp_path, name):
    batches = [batch(0, 0, "fog", 3), batch(1, 0, "fog", 1, images=5)]
    record = read_record(write(tmp_path / name, HEADER, *batches, CLOSING))
    assert (record.method, record.seed, record.finished) == ("law", 3, True)
    assert record.header == HEADER
    assert record.batches == batches
    assert record.closing == CLOSING
    assert record.path == tmp_path / name


def test_read_unfinished_record(tmp_path):
    path = write(tmp_path / "run.jsonl", HEADER, batch(0, 0, "fog", 3))
    with path.open("ab") as file:
        file.write(b'{"batch":1,"seg')
    record = read_record(path)
    assert not record.finished
    assert record.closing is None
    assert len(record.batches) == 1
    assert record.mean_error == 30.0


@pytest.mark.parametrize("lines", [[], [{"format": "driftlaw-train-1"}], [batch(0, 0, "fog", 1)]])
def test_file_without_header_is_refused(tmp_path, lines):
    with pytest.raises(DataError, match=f"does not start with a header of format {FORMAT}"):
        read_record(write(tmp_path / "run.jsonl", *lines))


def test_batch_with_missing_keys_is_refused(tmp_path):
    damaged = {"batch": 1, "segment": 0, "domain": {"name": "fog"}, "images": 5, "timing": {}}
    path = write(tmp_path / "run.jsonl", HEADER, batch(0, 0, "fog", 1), damaged)
    missing = r"domain\.severity, domain\.round, wrong, facts, timing\.seconds"
    with pytest.raises(DataError, match=rf"run\.jsonl, line 3 has no {missing}\."):
        read_record(path)


def test_find_records_searches_folders_recursively(tmp_path):
    one = write(tmp_path / "b.jsonl", HEADER)
    two = write(tmp_path / "deep" / "er" / "a.jsonl.gz", HEADER)
    write(tmp_path / "training.train.jsonl", {"format": "driftlaw-train-1"})
    write(tmp_path / "empty.jsonl")
    (tmp_path / "foreign.jsonl").write_text('"not ours"\nnor JSON\n')
    (tmp_path / "notes.txt").write_text("x")
    assert find_records([tmp_path, one]) == [one, two]
    assert find_records(iter([two, one])) == [two, one]


def test_find_records_returns_records_with_a_damaged_header(tmp_path):
    write(tmp_path / "whole.jsonl", HEADER)
    damaged = write(tmp_path / "damaged.jsonl", HEADER)
    damaged.write_bytes(b"x" + damaged.read_bytes()[1:])
    assert damaged in find_records([tmp_path])
    with pytest.raises(DataError, match="damaged"):
        read_record(damaged)


def test_find_records_returns_files_that_are_passed_explicitly(tmp_path):
    path = write(tmp_path / "other.jsonl", {"format": "driftlaw-train-1"})
    assert find_records([path]) == [path]


def test_find_records_reports_missing_records(tmp_path):
    with pytest.raises(DataError, match=r"No record at .*none"):
        find_records([tmp_path / "none"])
    with pytest.raises(DataError, match=f"No run records in {tmp_path}"):
        find_records(iter([tmp_path]))


def test_valid_record_is_returned():
    record = make_record()
    assert validate_record(record) is record


def test_missing_fields_are_reported():
    record = make_record(path=Path("x.jsonl"))
    del record.header["settings"], record.header["model"]["name"]
    with pytest.raises(DataError, match=r"x\.jsonl is damaged: .*'settings'; the header has no 'model\.name'\. Delete"):
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


def test_all_batches_or_none_must_have_labels():
    record = make_record()
    record.batches[1]["wrong"] = None
    with pytest.raises(DataError, match="some batches have labels and others have none"):
        validate_record(record)


def test_lists_of_metrics_must_have_the_same_lengths():
    record = make_record()
    header = record.header | {"measures": {"drift": {"tensors": ["a", "b"]}}}
    record.batches[0]["drift"] = [0.1, 0.2]
    assert validate_record(replace(record, header=header))
    for tensors in (["a"], 5):
        with pytest.raises(DataError, match="one number per tensor"):
            validate_record(replace(record, header=header | {"measures": {"drift": {"tensors": tensors}}}))
    for number in (0, 1):
        record.batches[number]["calibration"] = dict.fromkeys(("count", "confidence", "correct"), [0] * (5 + number))
    with pytest.raises(DataError, match="the same bins in all batches"):
        validate_record(replace(record, header=header))


def test_closing_line_without_error_needs_batches_without_labels():
    record = make_record("law")
    unlabelled = [line | {"wrong": None} for line in record.batches]
    closing = record.closing | {"mean_error": None}
    assert validate_record(replace(record, batches=unlabelled, closing=closing)).mean_error is None
    with pytest.raises(DataError, match="mean error of None"):
        validate_record(replace(record, closing=closing))
    with pytest.raises(DataError, match="the batches have None"):
        validate_record(replace(record, batches=unlabelled))


def test_number_of_batches_may_be_unknown():
    record = make_record("law")
    assert validate_record(replace(record, header=record.header | {"batches": None})).finished


WRONG_FIELDS = [
    (0, {"method": 3}, "line 1 has wrong values \\(method: Input should be a valid string"),
    (0, {"seed": "1"}, "line 1 has wrong values \\(seed: Input should be a valid integer"),
    (0, {"settings": ["tau"]}, "line 1 .*settings: Input should be a valid dictionary"),
    (0, {"stream": "embedded"}, "line 1 .*stream: Input should be"),
    (0, {"stream": {"dataset": {"name": 5}}}, "line 1 .*name: Input should be a valid string"),
    (0, {"model": {"sha256": 5}}, "line 1 .*model.sha256: Input should be a valid string"),
    (
        0,
        {"fact_labels": {"layer_weights": "conv1"}},
        "line 1 .*layer_weights: Input should be a valid list",
    ),
    (0, {"measures": []}, "line 1 .*measures: Input should be a valid dictionary"),
    (0, {"timing": {"started": 3.5}}, "line 1 .*started: Input should be a valid string"),
    (0, {"timing": {"started": "today"}}, "line 1 .*started: .*Invalid isoformat"),
    (0, {"batches": -1}, "line 1 .*batches: Input should be greater than or equal to 0"),
    (0, {"device": {"threads": "two"}}, "line 1 .*threads: Input should be a valid integer"),
    (1, {"wrong": 10**400}, "line 2 .*wrong: Input should be less than"),
    (1, {"images": "10"}, "line 2 .*images: Input should be a valid integer"),
    (1, {"images": -5}, "line 2 .*images: Input should be greater than or equal to 0"),
    (1, {"wrong": 2.5}, "line 2 .*wrong: Input should be a valid integer"),
    (1, {"wrong": True}, "line 2 .*wrong: Input should be a valid integer"),
    (1, {"domain": "fog"}, "line 2 .*domain: Input should be"),
    (1, {"facts": {"entropy": "low"}}, "line 2 .*facts.entropy"),
    (1, {"facts": {"layer_weights": [1, "x"]}}, "line 2 .*facts.layer_weights"),
    (1, {"timing": {"seconds": None}}, "line 2 .*timing.seconds: Input should be a valid number"),
    (1, {"calibration": {"count": 3}}, "line 2 has no calibration.confidence, calibration.correct"),
    (3, {"mean_error": "low"}, "line 4 .*mean_error: Input should be a valid number"),
    (3, {"timing": [1]}, "line 4 .*timing: Input should be"),
    (3, {"timing": {"load_average": 3}}, "line 4 .*load_average: Input should be a valid dictionary"),
    (3, {"cost": 5}, "line 4 .*cost: Input should be a valid dictionary"),
]


@pytest.mark.parametrize(("number", "changes", "message"), WRONG_FIELDS)
def test_fields_of_a_wrong_type_are_refused(tmp_path, number, changes, message):
    lines = [HEADER, batch(0, 0, "fog", 1), batch(1, 0, "fog", 1), CLOSING]
    lines[number] = lines[number] | changes
    with pytest.raises(DataError, match=message):
        read_record(write(tmp_path / "run.jsonl", *lines))


@pytest.mark.parametrize("order", [[1, 0, 2], [0, 2, 1], [0, 2], [1, 2], [0, 0, 1]])
def test_reordered_missing_or_repeated_lines_are_noticed(tmp_path, order):
    lines = [batch(number, 0, "fog", 1) for number in range(3)]
    with pytest.raises(DataError, match=r"was changed: .*run\.jsonl, line \d has batch \d, expected \d"):
        read_record(write(tmp_path / "run.jsonl", HEADER, *(lines[number] for number in order)))


def finished_lines():
    """Return the lines of a finished run, with the hash that a run writes."""
    lines = [HEADER, batch(0, 0, "fog", 1), batch(1, 0, "fog", 3)]
    closing = CLOSING | {"timing": {"seconds": 2.0}}
    digest = hashlib.sha256(b"".join(map(dump_line, [*lines, closing])))
    closing["timing"] = closing["timing"] | {SHA256_KEY: digest.hexdigest()}
    return [*lines, closing]


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz"])
def test_record_with_its_hash_is_read(tmp_path, name):
    record = read_record(write(tmp_path / name, *finished_lines()))
    assert record.closing == finished_lines()[-1]


@pytest.mark.parametrize(
    ("number", "changes"),
    [
        (0, {"seed": 4}),
        (1, {"wrong": 0}),
        (2, {"timing": {"seconds": 0.5}}),
        (2, {"note": "added"}),
        (3, {"mean_error": 0.5}),
        (3, {"error_by_domain": {"fog": 1.0}}),
    ],
)
def test_changed_lines_are_noticed(tmp_path, number, changes):
    lines = finished_lines()
    lines[number] = lines[number] | changes
    with pytest.raises(DataError, match=r"run\.jsonl was changed after the run: .*Restore the file, or delete it"):
        read_record(write(tmp_path / "run.jsonl", *lines))


def test_changed_time_in_the_closing_line_is_noticed(tmp_path):
    lines = finished_lines()
    lines[3]["timing"]["seconds"] = 1.0
    with pytest.raises(DataError, match="was changed after the run"):
        read_record(write(tmp_path / "run.jsonl", *lines))


def test_lines_after_the_closing_line_are_refused(tmp_path):
    with pytest.raises(DataError, match="has lines after its closing line"):
        read_record(write(tmp_path / "run.jsonl", *finished_lines(), batch(2, 0, "fog", 1)))


@pytest.mark.parametrize("value", ["NaN", "1e999", "-Infinity"])
def test_infinite_numbers_in_unknown_keys_are_noticed_as_changes(tmp_path, value):
    path = write(tmp_path / "run.jsonl", *finished_lines())
    path.write_bytes(path.read_bytes().replace(b'"closing":true', f'"closing":true,"more":{value}'.encode()))
    with pytest.raises(DataError, match="was changed after the run"):
        read_record(path)


@pytest.mark.parametrize("stated", [5, [1], "0" * 64])
def test_wrong_hash_is_refused(tmp_path, stated):
    lines = finished_lines()
    lines[3]["timing"][SHA256_KEY] = stated
    with pytest.raises(DataError, match="was changed after the run"):
        read_record(write(tmp_path / "run.jsonl", *lines))
