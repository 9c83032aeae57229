"""Tests of driftlaw.records.run_record."""

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from driftlaw.errors import DataError, UsageError
from driftlaw.records import RunRecord, dump_line, find_records, read_record, validate_record
from driftlaw.records.run_record import FORMAT
from tests.reports.example_records import make_record

HEADER = {"format": FORMAT, "method": "law", "seed": 3}
CLOSING = {"closing": True, "mean_error": 1.0}


def batch(number, segment, name, wrong, *, images=10, severity=5, round=0, seconds=1.0, facts=None):
    domain = {"name": name, "severity": severity, "round": round}
    line = {"batch": number, "segment": segment, "domain": domain, "images": images, "wrong": wrong}
    return line | {"facts": facts or {}, "timing": {"seconds": seconds}}


def write(path, *lines):
    content = b"".join(map(dump_line, lines))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


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


def test_segment_error_counts_images():
    record = RunRecord(HEADER, [batch(0, 0, "fog", 0), batch(1, 0, "fog", 5, images=5), batch(2, 1, "snow", 1)])
    fog, snow = record.segments
    assert (fog.first_batch, fog.batches, fog.images, fog.wrong) == (0, 2, 15, 5)
    assert fog.error == pytest.approx(100 / 3)
    assert (snow.name, snow.severity, snow.round, snow.first_batch, snow.error) == ("snow", 5, 0, 2, 10.0)


def test_mean_error_weighs_segments_equally():
    record = RunRecord(HEADER, [batch(0, 0, "fog", 0, images=90), batch(1, 1, "snow", 10)])
    assert record.mean_error == 50.0


def test_error_by_domain_averages_rounds_and_severities():
    record = RunRecord(
        HEADER,
        [
            batch(0, 0, "fog", 1, severity=1),
            batch(1, 1, "fog", 3, severity=2),
            batch(2, 2, "snow", 5),
            batch(3, 3, "fog", 8, round=1),
        ],
    )
    assert record.error_by_domain == {"fog": pytest.approx(40.0), "snow": 50.0}
    assert record.mean_error == pytest.approx(42.5)


def test_repeated_domain_gives_two_segments():
    record = RunRecord(HEADER, [batch(0, 0, "fog", 1), batch(1, 1, "fog", 2)])
    assert [segment.wrong for segment in record.segments] == [1, 2]


def test_seconds_per_step_skips_the_first_step():
    seconds = [50.0, 1.0, 2.0, 9.0]
    record = RunRecord(HEADER, [batch(n, 0, "fog", 0, seconds=value) for n, value in enumerate(seconds)])
    assert record.seconds_per_step == 2.0
    assert RunRecord(HEADER, record.batches[:1]).seconds_per_step == 50.0


def test_record_without_batches_has_no_error(tmp_path):
    record = read_record(write(tmp_path / "run.jsonl", HEADER))
    assert not record.finished
    assert record.error_by_domain == {}
    with pytest.raises(UsageError, match=r"run\.jsonl has no batches yet"):
        _ = record.mean_error
    with pytest.raises(UsageError, match="has no batches yet"):
        _ = record.seconds_per_step


def test_diagnostics_have_one_row_per_step():
    facts = [{"layer_weights": [0.1, 1.0], "loss": 2.0}, {"layer_weights": [0.2, 1.0]}]
    record = RunRecord(HEADER, [batch(n, 0, "fog", 0, facts=values) for n, values in enumerate(facts)])
    assert record.diagnostics("layer_weights") == [[0.1, 1.0], [0.2, 1.0]]
    assert record.diagnostics("loss") == [[2.0]]
    assert record.diagnostics("nothing") == []


def test_properties_read_the_keys_of_the_file_format():
    header = HEADER | {"needs_source": True, "measures": {"drift": {}}, "fact_labels": {"layer_weights": ["conv1"]}}
    header |= {"settings": {"tau": 0.6, "precision": "bf16"}, "execution": {"precision": "bf16", "compiled": True}}
    line = batch(0, 0, "fog", 0) | {"cost": {"step_flops_per_image": 7}}
    record = RunRecord(header, [line])
    assert record.needs_train_data
    assert record.metrics == {"drift"}
    assert record.diagnostic_labels("layer_weights") == ["conv1"]
    assert record.diagnostic_labels("loss") == []
    assert record.settings == {"tau": 0.6, "precision": "bf16", "compiled": True}
    assert record.cost == {"step_flops_per_image": 7}
    assert (record.timing, record.shared_gpu, record.location) == ({}, False, "a run in memory")
    closing = CLOSING | {"cost": {"step_flops_per_image": 5}, "timing": {"seconds": 2.0, "shared_gpu": True}}
    closed = RunRecord(header, [line], closing)
    assert (closed.cost, closed.timing["seconds"], closed.shared_gpu) == ({"step_flops_per_image": 5}, 2.0, True)


@pytest.mark.parametrize(
    ("timing", "busy"),
    [
        ({}, False),
        ({"load_average": {"start": 2.9, "end": 3.0, "cpus": 2}}, False),
        ({"load_average": {"start": 3.1, "end": 0.5, "cpus": 2}}, True),
        ({"load_average": {"start": 0.5, "end": 9.0, "cpus": 2}}, True),
        ({"load_average": {"start": 9.0, "end": 9.0, "cpus": None}}, False),
    ],
)
def test_machine_is_busy_if_the_load_exceeds_its_cpus(timing, busy):
    assert RunRecord(HEADER, [], CLOSING | {"timing": timing}).busy_machine is busy


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


def test_without_labels_there_is_no_error():
    record = RunRecord(HEADER, [batch(0, 0, "fog", None), batch(1, 0, "fog", None)])
    assert record.segments[0].wrong is None
    assert record.segments[0].error is None
    assert record.mean_error is None
    assert record.error_by_domain == {}


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


def test_repr_is_short():
    batches = [batch(0, 0, "fog", 3), batch(1, 0, "fog", 2)]
    assert repr(RunRecord(HEADER, batches, CLOSING, Path("a.jsonl"))) == (
        "<RunRecord: law, seed 3, 25.00 % error, 2 batches, a.jsonl>"
    )
    assert repr(RunRecord(HEADER, [batch(0, 0, "fog", None)])) == (
        "<RunRecord: law, seed 3, unfinished, no labels, 1 batches, a run in memory>"
    )
    assert repr(RunRecord(HEADER, [])) == "<RunRecord: law, seed 3, unfinished, 0 batches, a run in memory>"
