"""Tests of driftlaw.records.metrics, against values computed by hand."""

import math

import pytest

from driftlaw.records import (
    RunRecord,
    calibration_error,
    clean_error,
    error_by_round,
    layer_drift,
    mean_recovery,
    recoveries,
    worst_window,
)

HEADER = {"method": "law", "seed": 1}
CLOSING = {"closing": True}


def record(*domains, closing=CLOSING, header=HEADER, images=100):
    """Return a run of some domains, each a list with the number of wrong predictions per batch."""
    lines = []
    for segment, wrong in enumerate(domains):
        for count in wrong:
            domain = {"name": "abcdef"[segment], "severity": 5, "round": 0}
            lines.append({"batch": len(lines), "segment": segment, "domain": domain, "images": images, "wrong": count})
    return RunRecord(header, lines, closing)


def bins(count, confidence, correct):
    return {"count": count, "confidence": confidence, "correct": correct}


def test_calibration_error_is_the_weighted_gap_between_confidence_and_accuracy():
    run = record([0], [0])
    run.batches[0]["calibration"] = bins([0, 4, 6], [0.0, 2.0, 5.4], [0, 1, 6])
    run.batches[1]["calibration"] = bins([0, 0, 10], [0.0, 0.0, 9.0], [0, 0, 8])
    # The two gaps of the last bin, of different sign, partly cancel, because bins are pooled over the stream.
    assert calibration_error(run) == pytest.approx(100 * (1.0 + abs(14 - 14.4)) / 20)


def test_metrics_that_were_not_measured_are_none():
    run = record([1, 2])
    assert calibration_error(run) is None
    assert clean_error(run) is None
    assert layer_drift(run) is None


def test_forgetting_is_clean_error_after_minus_before():
    run = record([1], closing=CLOSING | {"clean": {"images": 200, "wrong_before": 10, "wrong_after": 15}})
    clean = clean_error(run)
    assert (clean.before, clean.after, clean.images, clean.forgotten) == (5.0, 7.5, 200, 2.5)


def test_error_by_round_averages_domains():
    domains = [10, 30], [40, 40], [10, 10], [20, 20]
    assert error_by_round(record(*domains)) == [pytest.approx(22.5)]
    run = record(*domains)
    for line in run.batches:
        line["domain"]["round"] = line["segment"] // 2
    assert error_by_round(run) == [30.0, 15.0]


def test_worst_window_may_span_two_domains():
    run = record([10, 10, 40], [40, 10, 10])
    window = worst_window(run, 2)
    assert (window.first_batch, window.batches, window.error) == (2, 2, 40.0)


def test_stream_shorter_than_the_window_is_one_window():
    assert worst_window(record([10, 30])).error == 20.0
    assert worst_window(record([10, 30])).batches == 2
    assert worst_window(record(closing=None)) is None


def test_recovery_counts_batches_before_the_first_settled_window():
    (recovery,) = recoveries(record([50, 50, 40, 10, 10, 10, 10, 10, 10, 10]))
    assert (recovery.batches, recovery.length, recovery.name) == (3, 10, "a")
    (immediate,) = recoveries(record([10] * 8))
    assert immediate.batches == 0


def test_error_below_the_settled_error_counts_as_recovered():
    (recovery,) = recoveries(record([5, 5, 5, 30, 30, 30, 30, 30]))
    assert recovery.batches == 0


def test_recovery_tolerance():
    domain = [11, 11, 11, 10, 10, 10, 10, 10]
    assert recoveries(record(domain))[0].batches == 0
    assert recoveries(record(domain), tolerance=0.9)[0].batches == 1
    assert recoveries(record(domain), tolerance=0.1)[0].batches == 3


def test_oscillating_error_may_never_recover():
    oscillating = record([90] * 4 + [0, 90, 90, 0])  # settled: 45; every three batches hold 60 or more
    (recovery,) = recoveries(oscillating)
    assert recovery.batches is None
    assert mean_recovery(oscillating) == 8.0


def test_short_and_incomplete_segments_are_skipped():
    assert recoveries(record([10] * 5)) == []
    assert mean_recovery(record([10] * 5)) is None
    assert [item.name for item in recoveries(record([10] * 6, [10] * 6, closing=None))] == ["a"]


def with_drift(rows, tensors):
    run = record([1, 2], [3], header=HEADER | {"measures": {"drift": {"tensors": tensors}}})
    for line, row in zip([run.batches[1], run.batches[2]], rows, strict=True):
        line["drift"] = row
    return run


def test_drift_per_tensor_and_domain():
    drift = layer_drift(with_drift([[0.1, 0.2, None], [0.1, 0.5, None]], ["a.weight", "a.bias", "b.bias"]))
    assert drift.domains == ("a", "b")
    assert drift.distances[0, 1] == 0.2
    assert math.isnan(drift.distances[0, 2])
    assert drift.mean == pytest.approx(0.3)
    assert drift.farthest(1) == [("a.bias", 0.5)]


def test_drift_without_trainable_tensors_is_zero():
    drift = layer_drift(with_drift([[], []], []))
    assert (drift.mean, drift.farthest()) == (0.0, [])


def test_drift_is_infinite_if_no_distance_is_finite():
    assert layer_drift(with_drift([[0.1], [None]], ["a.weight"])).mean == math.inf
