"""Tests of tools.results.claims and tools.results.layer_claims."""

import pytest

from driftlaw.reports.published import compare_with_paper
from driftlaw.reports.tables import make_tables
from tests.reports.example_records import make_record
from tests.reports.layer_records import EARLY, FLAT, LATE, make_layer_record
from tools.results import claims, layer_claims
from tools.results.layer_profiles import layer_profiles

PAPER_SETTINGS = {"learning_rate": 1e-3, "tau": 1.0, "consistency_weight": 0.1}


def table_of(*runs, **options):
    records = [make_record(name, [error] * 15, settings=settings, **options) for name, error, settings in runs]
    return make_tables(records)[0]


def sweep(setting, **errors):
    return table_of(*(("law", error, {setting: float(value[1:].replace("_", "."))}) for value, error in errors.items()))


@pytest.mark.parametrize(("error", "holds"), [(16, True), (17, False), (15, True)])
def test_agreement_is_within_one_point(error, holds):
    table = table_of(("law", error, PAPER_SETTINGS), header={"model": {"name": "wrn_28_10"}})
    (result,) = claims.check_agreement(compare_with_paper(table))
    assert result.holds is holds
    assert f"ours {error:.1f}, paper 15.7" in result.evidence


def test_agreement_needs_the_papers_settings_and_model():
    tuned = table_of(("law", 15, {**PAPER_SETTINGS, "learning_rate": 5e-4}), header={"model": {"name": "wrn_28_10"}})
    small = table_of(("law", 15, PAPER_SETTINGS))
    assert claims.check_agreement(compare_with_paper(tuned)) == claims.check_agreement(compare_with_paper(small)) == []


@pytest.mark.parametrize(("law", "norm", "holds"), [(16, 21, True), (12, 17, True), (16, 19, False), (16, 23, False)])
def test_gain_over_bn_1_is_compared_with_the_paper(law, norm, holds):
    runs = [("law", law, PAPER_SETTINGS), ("norm", norm, {})]
    (result,) = claims.check_gain(compare_with_paper(table_of(*runs, header={"model": {"name": "wrn_28_10"}})))
    assert result.holds is holds
    assert result.evidence == f"ours {norm:.1f} − {law:.1f} = +{norm - law:.1f}; paper 20.4 − 15.7 = +4.7"


def test_gain_needs_one_row_of_bn_1_and_the_papers_settings():
    tuned = [("law", 16, {**PAPER_SETTINGS, "learning_rate": 5e-4}), ("norm", 21, {})]
    twice = [("law", 16, PAPER_SETTINGS), ("norm", 21, {}), ("norm", 30, {"momentum": 0.1})]
    for runs in ([("law", 16, PAPER_SETTINGS)], tuned, twice):
        table = table_of(*runs, header={"model": {"name": "wrn_28_10"}})
        assert claims.check_gain(compare_with_paper(table)) == []


@pytest.mark.parametrize(("error", "holds"), [(15, True), (16, False)])
def test_tuned_settings_are_compared_with_the_paper(error, holds):
    runs = [("law", error, {**PAPER_SETTINGS, "learning_rate": 5e-4}), ("law", 10, PAPER_SETTINGS)]
    (result,) = claims.check_tuned(compare_with_paper(table_of(*runs, header={"model": {"name": "wrn_28_10"}})))
    assert result.holds is holds
    assert "LAW with learning_rate 0.0005 (paper 0.001)" in result.claim


def test_methods_with_training_data_do_not_count_as_competitors():
    (result,) = claims.check_lowest_without_train_data(table_of(("law", 16, {}), ("tent", 20, {}), ("rmt", 14, {})))
    assert result.holds
    assert "LAW 16.0 and TENT 20.0, −4.00 [−4.00, −4.00] points" in result.evidence
    (result,) = claims.check_lowest_without_train_data(table_of(("law", 20, {}), ("tent", 16, {})))
    assert not result.holds
    assert claims.check_lowest_without_train_data(table_of(("law", 20, {}))) == []


def test_order_holds_if_errors_increase():
    order = ["law", "tent", "norm"]
    assert claims.check_order(table_of(("law", 16, {}), ("tent", 18, {}), ("norm", 20, {})), order)[0].holds
    assert not claims.check_order(table_of(("law", 18, {}), ("tent", 16, {}), ("norm", 20, {})), order)[0].holds
    assert claims.check_order(table_of(("law", 18, {})), order) == []


def test_minimum_is_inside_the_range():
    (result,) = claims.check_minimum(sweep("tau", v0=40, v0_5=16, v1=20), "tau", "τ")
    assert result.holds
    assert result.evidence == "lowest at 0.5; 0: 40.0, 0.5: 16.0, 1: 20.0"
    (result,) = claims.check_minimum(sweep("tau", v0=40, v0_5=20, v1=16), "tau", "τ")
    assert not result.holds
    assert result.outcome == "does not hold"
    assert claims.check_minimum(sweep("tau", v0=40, v0_5=20), "tau", "τ") == []


def test_divergence_is_the_largest_error_at_the_lowest_value():
    assert claims.check_divergence(sweep("tau", v0=80, v0_5=20, v1=30), "tau", "τ")[0].holds
    assert not claims.check_divergence(sweep("tau", v0=20, v0_5=80, v1=30), "tau", "τ")[0].holds


def test_largest_value_may_be_negligibly_worse():
    assert claims.check_largest_is_best(sweep("fisher_decay", v0=17, v1=16), "fisher_decay", "γ")[0].holds
    assert not claims.check_largest_is_best(sweep("fisher_decay", v0=16, v1=17), "fisher_decay", "γ")[0].holds


def test_parts_are_compared_with_tent_and_law():
    parts = [("surgical", error, {"part": "up_to", "stage": stage}) for stage, error in [(1, 25), (2, 22)]]
    table = table_of(*parts, ("tent", 24, {}), ("law", 20, {}))
    assert [result.holds for result in claims.check_parts(table)] == [True, True]
    table = table_of(*parts, ("tent", 21, {}), ("law", 23, {}))
    assert [result.holds for result in claims.check_parts(table)] == [False, False]
    assert claims.check_parts(table_of(("law", 23, {}))) == []


def test_cost_is_compared_in_flops():
    (result,) = claims.check_cost(table_of(("rmt", 14, {}), ("law", 16, {})))
    assert result.holds
    assert result.evidence == "432.0 M and 648.0 M, ratio 1.5"
    assert claims.check_cost(table_of(("tent", 14, {}), ("law", 16, {}))) == []


def profiles(name, **values):
    return layer_profiles(
        [make_layer_record(domain, **{name: layers}) for domain, layers in values.items()], f"layer_{name}"
    )


def test_blur_is_early_and_noise_is_even():
    results = layer_claims.check_weight_distribution(profiles("weights", gaussian_noise=FLAT, defocus_blur=EARLY))
    assert [result.holds for result in results] == [True, True]
    assert "85.7 % under defocus blur, 33.3 % under Gaussian noise" in results[0].evidence
    results = layer_claims.check_weight_distribution(profiles("weights", gaussian_noise=FLAT, defocus_blur=LATE))
    assert [result.holds for result in results] == [False, True]
    assert layer_claims.check_weight_distribution(profiles("weights", gaussian_noise=FLAT)) == []


def test_source_is_compared_with_every_target():
    measured = profiles("sharpness", clean=FLAT, gaussian_noise=[3.0] * 9, defocus_blur=[0.5] * 8 + [9.0])
    for check in (layer_claims.check_importance_on_source, layer_claims.check_fisher_on_source):
        noise, blur = check(measured)
        assert (noise.holds, blur.holds) == (True, False)
        assert "lower in 100 % of 9 layers" in noise.evidence
        assert "lower in 11 % of 9 layers" in blur.evidence
