from itertools import product

import numpy as np
import pytest

from driftlaw.reports.statistics import Difference, bootstrap_interval, paired_difference
from tests.reports.example_records import make_record


def every_resample(values):
    """The mean of every equally likely choice of seeds and domains with replacement, by loops."""
    seeds, domains = range(len(values)), range(len(values[0]))
    return [
        sum(values[seed][domain] for seed in rows for domain in columns) / (len(rows) * len(columns))
        for rows in product(seeds, repeat=len(seeds))
        for columns in product(domains, repeat=len(domains))
    ]


def plain_bootstrap(values, resamples, level, seed):
    """The same draws as the fast version, one resample after the other."""
    rows = np.random.default_rng(seed).integers(0, len(values), size=(resamples, len(values)))
    columns = np.random.default_rng(seed + 1).integers(0, len(values[0]), size=(resamples, len(values[0])))
    means = sorted(
        sum(values[row][column] for row in rows[number] for column in columns[number])
        / (rows.shape[1] * columns.shape[1])
        for number in range(resamples)
    )
    return [float(np.quantile(means, share)) for share in ((1 - level) / 2, (1 + level) / 2)]


VALUES = [[1.0, -0.5, 2.0], [0.5, 0.25, 1.5]]


def test_the_interval_is_that_of_the_same_draws_one_by_one():
    fast = bootstrap_interval(VALUES, resamples=500, seed=3)
    assert fast == pytest.approx(plain_bootstrap(VALUES, 500, 0.95, 3))


def test_the_interval_is_near_that_of_all_resamples_there_are():
    exact = np.quantile(every_resample(VALUES), [0.05, 0.95])
    assert bootstrap_interval(VALUES, level=0.9) == pytest.approx(exact, abs=0.06)


def test_the_same_numbers_give_the_same_interval():
    assert bootstrap_interval(VALUES) == bootstrap_interval(VALUES)


def test_a_constant_difference_has_an_interval_of_no_width():
    assert bootstrap_interval([[2.0] * 15] * 3) == pytest.approx((2.0, 2.0))


def test_differences_that_are_no_sheet_are_refused():
    for values in ([1.0, 2.0], [[]]):
        with pytest.raises(ValueError, match="seeds, domains"):
            bootstrap_interval(values)


def test_runs_are_paired_by_seed_and_domain():
    law = [make_record("law", {"fog": 10 + seed, "snow": 20}, seed=seed) for seed in (1, 2)]
    tent = [make_record("tent", {"fog": 14 + seed, "snow": 30}, seed=seed) for seed in (2, 1, 3)]
    found = paired_difference(tent, law)
    assert (found.mean, found.seeds, found.units, found.noun) == (pytest.approx(7.0), 2, 2, "domains")
    assert (found.low, found.high) == pytest.approx((4.0, 10.0))


def test_a_single_domain_is_paired_batch_by_batch():
    law, tent = make_record("law", {"fog": 10}), make_record("tent", {"fog": 20})
    for found in (paired_difference([tent], [law]), paired_difference([tent], [law], domain="fog")):
        assert (found.mean, found.units, found.noun) == (pytest.approx(10.0), 2, "batches")


def test_one_severity_can_be_asked_for():
    law = make_record("law", {"fog": 10, "snow": 20}, severities=(1, 5))
    tent = make_record("tent", {"fog": 20, "snow": 40}, severities=(1, 5))
    assert paired_difference([tent], [law], severity=5).mean == pytest.approx(15.0)
    assert paired_difference([tent], [law]).mean == pytest.approx(9.0)


def test_nothing_in_common_has_no_difference():
    assert paired_difference([make_record(seed=1)], [make_record(seed=2)]) is None
    assert paired_difference([make_record(errors={"fog": 1})], [make_record(errors={"snow": 1})]) is None
    single = {"errors": {"fog": 10}, "batches_a_domain": 1}
    assert paired_difference([make_record("law", **single)], [make_record("tent", **single)]) is None


@pytest.mark.parametrize(("low", "high", "sure"), [(0.1, 0.2, True), (-0.2, -0.1, True), (-0.1, 0.1, False)])
def test_an_interval_leaves_zero_out_or_not(low, high, sure):
    assert Difference(0.0, low, high, 2, 3).leaves_zero_out is sure
    assert not Difference(0.0, low, high, 1, 5).leaves_zero_out  # so few may agree by chance
