"""Tests of driftlaw.records.run_record."""

from pathlib import Path

import pytest

from driftlaw.errors import UsageError
from driftlaw.records import RunRecord, read_record
from tests.records.record_lines import CLOSING, HEADER, batch, write


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


def test_without_labels_there_is_no_error():
    record = RunRecord(HEADER, [batch(0, 0, "fog", None), batch(1, 0, "fog", None)])
    assert record.segments[0].wrong is None
    assert record.segments[0].error is None
    assert record.mean_error is None
    assert record.error_by_domain == {}


def test_repr_is_short():
    batches = [batch(0, 0, "fog", 3), batch(1, 0, "fog", 2)]
    assert repr(RunRecord(HEADER, batches, CLOSING, Path("a.jsonl"))) == (
        "<RunRecord: law, seed 3, 25.00 % error, 2 batches, a.jsonl>"
    )
    assert repr(RunRecord(HEADER, [batch(0, 0, "fog", None)])) == (
        "<RunRecord: law, seed 3, unfinished, no labels, 1 batches, a run in memory>"
    )
    assert repr(RunRecord(HEADER, [])) == "<RunRecord: law, seed 3, unfinished, 0 batches, a run in memory>"


def test_mean_iou_is_of_the_sums_within_a_segment_and_averaged_over_segments():
    counts = [([4, 0, 0], [8, 2, 0]), ([2, 6, 0], [4, 6, 0]), ([5, 0, 3], [10, 0, 3])]
    lines = []
    for number, (intersection, union) in enumerate(counts):
        line = batch(number, number // 2, "ab"[number // 2], 3, images=1)
        lines.append(line | {"pixels": 12, "iou": {"intersection": intersection, "union": union}})
    record = RunRecord(HEADER, lines)
    assert record.error_by_domain == {"a": 25.0, "b": 25.0}
    assert record.mean_iou_by_domain == {"a": pytest.approx(100 * (6 / 12 + 6 / 8) / 2), "b": 75.0}
    assert record.mean_iou == pytest.approx((62.5 + 75) / 2)
    assert record.iou_by_class == {"0": 50.0, "1": 75.0, "2": 100.0}  # where the class occurs
    assert record.error_text == "25.00 % error, 68.75 % mIoU"
    assert RunRecord(HEADER, [batch(0, 0, "a", 3)]).iou_summary() == {}


def test_segment_without_labelled_pixels_has_no_error():
    empty = {"pixels": 0, "iou": {"intersection": [0, 0], "union": [0, 0]}}
    record = RunRecord(HEADER, [batch(0, 0, "a", 0) | empty])
    assert (record.mean_error, record.mean_iou, record.error_by_domain) == (None, None, {})
