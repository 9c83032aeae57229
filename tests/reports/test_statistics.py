from itertools import product

import numpy as np
import pytest

from driftlaw.reports.statistics import Difference, bootstrap_interval, paired_difference
from tests.reports.example_records import make_record


def every_resample(values):
    """Return the means of all equally likely resamples of seeds and domains."""
    seeds, domains = range(len(values)), range(len(values[0]))
    return [
        sum(values[seed][domain] for seed in rows for domain in columns) / (len(rows) * len(columns))
        for rows in product(seeds, repeat=len(seeds))
        for columns in product(domains, repeat=len(domains))
    ]


def plain_bootstrap(values, resamples, level, seed):
    """Return the interval from the same draws as the implementation, one resample at a time."""
    rows = np.random.default_rng(seed).integers(0, len(values), size=(resamples, len(values)))
    columns = np.random.default_rng(seed + 1).integers(0, len(values[0]), size=(resamples, len(values[0])))
    means = sorted(
        sum(values[row][column] for row in rows[number] for column in columns[number])
        / (rows.shape[1] * columns.shape[1])
        for number in range(resamples)
    )
    return [float(np.quantile(means, share)) for share in ((1 - level) / 2, (1 + level) / 2)]


VALUES = [[1.0, -0.5, 2.0], [0.5, 0.25, 1.5]]


def test_interval_agrees_with_a_loop_over_the_same_draws():
    fast = bootstrap_interval(VALUES, resamples=500, seed=3)
    assert fast == pytest.approx(plain_bootstrap(VALUES, 500, 0.95, 3))


def test_interval_is_close_to_that_of_all_resamples():
    exact = np.quantile(every_resample(VALUES), [0.05, 0.95])
    assert bootstrap_interval(VALUES, level=0.9) == pytest.approx(exact, abs=0.06)


def test_interval_is_deterministic():
    assert bootstrap_interval(VALUES) == bootstrap_interval(VALUES)


def test_constant_difference_has_an_empty_interval():
    assert bootstrap_interval([[2.0] * 15] * 3) == pytest.approx((2.0, 2.0))


def test_wrong_shape_is_an_error():
    for values in ([1.0, 2.0], [[]]):
        with pytest.raises(ValueError, match="seeds, domains"):
            bootstrap_interval(values)


def test_runs_are_paired_by_seed_and_domain():
    law = [make_record("law", {"fog": 10 + seed, "snow": 20}, seed=seed) for seed in (1, 2)]
    tent = [make_record("tent", {"fog": 14 + seed, "snow": 30}, seed=seed) for seed in (2, 1, 3)]
    difference = paired_difference(tent, law)
    assert (difference.mean, difference.seeds, difference.units, difference.noun) == (
        pytest.approx(7.0),
        2,
        2,
        "domains",
    )
    assert (difference.low, difference.high) == pytest.approx((4.0, 10.0))


def test_single_domain_is_paired_by_batch():
    law, tent = make_record("law", {"fog": 10}), make_record("tent", {"fog": 20})
    for difference in (paired_difference([tent], [law]), paired_difference([tent], [law], domain="fog")):
        assert (difference.mean, difference.units, difference.noun) == (pytest.approx(10.0), 2, "batches")


def test_severity_selects_segments():
    law = make_record("law", {"fog": 10, "snow": 20}, severities=(1, 5))
    tent = make_record("tent", {"fog": 20, "snow": 40}, severities=(1, 5))
    assert paired_difference([tent], [law], severity=5).mean == pytest.approx(15.0)
    assert paired_difference([tent], [law]).mean == pytest.approx(9.0)


def test_no_difference_without_common_seeds_or_domains():
    assert paired_difference([make_record(seed=1)], [make_record(seed=2)]) is None
    assert paired_difference([make_record(errors={"fog": 1})], [make_record(errors={"snow": 1})]) is None
    single = {"errors": {"fog": 10}, "batches_per_domain": 1}
    assert paired_difference([make_record("law", **single)], [make_record("tent", **single)]) is None


@pytest.mark.parametrize(("low", "high", "significant"), [(0.1, 0.2, True), (-0.2, -0.1, True), (-0.1, 0.1, False)])
def test_significance_needs_six_pairs_and_an_interval_without_zero(low, high, significant):
    assert Difference(0.0, low, high, 2, 3).is_significant is significant
    assert not Difference(0.0, low, high, 1, 5).is_significant  # so few may agree by chance
