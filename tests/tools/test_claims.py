import pytest

from driftlaw.reports.published import compare_with_paper
from driftlaw.reports.tables import make_tables
from tests.reports.example_records import make_record
from tests.reports.layer_records import EARLY, FLAT, LATE, make_layer_record
from tools.results import claims as findings
from tools.results.layer_profiles import layer_profiles

PAPERS = {"learning_rate": 1e-3, "tau": 1.0, "consistency_weight": 0.1}


def table_of(*runs, **options):
    records = [make_record(name, [error] * 15, settings=settings, **options) for name, error, settings in runs]
    return make_tables(records)[0]


def sweep(setting, **errors):
    return table_of(*(("law", error, {setting: float(value[1:].replace("_", "."))}) for value, error in errors.items()))


@pytest.mark.parametrize(("error", "holds"), [(16, True), (17, False), (15, True)])
def test_agreement_is_one_point_either_way(error, holds):
    table = table_of(("law", error, PAPERS), header={"model": {"name": "wrn_28_10"}})
    (found,) = findings.find_agreement(compare_with_paper(table))
    assert found.holds is holds
    assert f"ours {error:.1f}, paper 15.7" in found.evidence


def test_other_settings_or_another_network_are_no_test_of_agreement():
    tuned = table_of(("law", 15, {**PAPERS, "learning_rate": 5e-4}), header={"model": {"name": "wrn_28_10"}})
    small = table_of(("law", 15, PAPERS))
    assert (
        findings.find_agreement(compare_with_paper(tuned)) == findings.find_agreement(compare_with_paper(small)) == []
    )


@pytest.mark.parametrize(("law", "norm", "holds"), [(16, 21, True), (12, 17, True), (16, 19, False), (16, 23, False)])
def test_what_law_gains_on_bn_1_does_not_hang_on_how_good_the_network_is(law, norm, holds):
    runs = [("law", law, PAPERS), ("norm", norm, {})]
    (found,) = findings.find_gain(compare_with_paper(table_of(*runs, header={"model": {"name": "wrn_28_10"}})))
    assert found.holds is holds
    assert found.evidence == f"ours {norm:.1f} − {law:.1f} = +{norm - law:.1f}; paper 20.4 − 15.7 = +4.7"


def test_without_bn_1_or_with_other_settings_there_is_no_gain_to_compare():
    tuned = [("law", 16, {**PAPERS, "learning_rate": 5e-4}), ("norm", 21, {})]
    twice = [("law", 16, PAPERS), ("norm", 21, {}), ("norm", 30, {"momentum": 0.1})]
    for runs in ([("law", 16, PAPERS)], tuned, twice):
        table = table_of(*runs, header={"model": {"name": "wrn_28_10"}})
        assert findings.find_gain(compare_with_paper(table)) == []


@pytest.mark.parametrize(("error", "holds"), [(15, True), (16, False)])
def test_a_tuned_row_is_to_be_at_or_below_the_paper(error, holds):
    runs = [("law", error, {**PAPERS, "learning_rate": 5e-4}), ("law", 10, PAPERS)]
    (found,) = findings.find_tuned(compare_with_paper(table_of(*runs, header={"model": {"name": "wrn_28_10"}})))
    assert found.holds is holds
    assert "LAW with learning_rate 0.0005 (paper 0.001)" in found.claim


def test_the_lowest_source_free_method_is_not_beaten_by_one_that_needs_source():
    (found,) = findings.find_lowest_source_free(table_of(("law", 16, {}), ("tent", 20, {}), ("rmt", 14, {})))
    assert found.holds
    assert "LAW 16.0 against TENT 20.0, −4.00 [−4.00, −4.00] points" in found.evidence
    (found,) = findings.find_lowest_source_free(table_of(("law", 20, {}), ("tent", 16, {})))
    assert not found.holds
    assert findings.find_lowest_source_free(table_of(("law", 20, {}))) == []


def test_an_order_holds_where_every_method_is_below_the_next():
    order = ["law", "tent", "norm"]
    assert findings.find_order(table_of(("law", 16, {}), ("tent", 18, {}), ("norm", 20, {})), order)[0].holds
    assert not findings.find_order(table_of(("law", 18, {}), ("tent", 16, {}), ("norm", 20, {})), order)[0].holds
    assert findings.find_order(table_of(("law", 18, {})), order) == []


def test_a_minimum_lies_inside():
    (found,) = findings.find_minimum(sweep("tau", v0=40, v0_5=16, v1=20), "tau", "τ")
    assert found.holds
    assert found.evidence == "lowest at 0.5; 0: 40.0, 0.5: 16.0, 1: 20.0"
    (found,) = findings.find_minimum(sweep("tau", v0=40, v0_5=20, v1=16), "tau", "τ")
    assert not found.holds
    assert found.verdict == "does not hold"
    assert findings.find_minimum(sweep("tau", v0=40, v0_5=20), "tau", "τ") == []


def test_divergence_is_the_largest_error_at_the_lowest_value():
    assert findings.find_divergence(sweep("tau", v0=80, v0_5=20, v1=30), "tau", "τ")[0].holds
    assert not findings.find_divergence(sweep("tau", v0=20, v0_5=80, v1=30), "tau", "τ")[0].holds


def test_the_best_end_may_be_hardly_worse():
    assert findings.find_best_end(sweep("fisher_decay", v0=17, v1=16), "fisher_decay", "γ")[0].holds
    assert not findings.find_best_end(sweep("fisher_decay", v0=16, v1=17), "fisher_decay", "γ")[0].holds


def test_a_part_beats_tent_and_law_beats_every_part():
    parts = [("surgical", error, {"part": "up_to", "stage": stage}) for stage, error in [(1, 25), (2, 22)]]
    table = table_of(*parts, ("tent", 24, {}), ("law", 20, {}))
    assert [found.holds for found in findings.find_better_part(table)] == [True, True]
    table = table_of(*parts, ("tent", 21, {}), ("law", 23, {}))
    assert [found.holds for found in findings.find_better_part(table)] == [False, False]
    assert findings.find_better_part(table_of(("law", 23, {}))) == []


def test_a_cheaper_step_is_told_in_operations():
    (found,) = findings.find_cheaper_step(table_of(("rmt", 14, {}), ("law", 16, {})))
    assert found.holds
    assert found.evidence == "432.0 M against 648.0 M, 1.5 times as much"
    assert findings.find_cheaper_step(table_of(("tent", 14, {}), ("law", 16, {}))) == []


def profiles(fact, **values):
    return layer_profiles([make_layer_record(name, **{fact: told}) for name, told in values.items()], f"layer_{fact}")


def test_blur_lies_early_and_noise_spreads():
    found = findings.find_where_weight_lies(profiles("weights", gaussian_noise=FLAT, defocus_blur=EARLY))
    assert [each.holds for each in found] == [True, True]
    assert "85.7 % under defocus blur, 33.3 % under Gaussian noise" in found[0].evidence
    found = findings.find_where_weight_lies(profiles("weights", gaussian_noise=FLAT, defocus_blur=LATE))
    assert [each.holds for each in found] == [False, True]
    assert findings.find_where_weight_lies(profiles("weights", gaussian_noise=FLAT)) == []


def test_the_source_is_below_every_target_or_not():
    met = profiles("sharpness", clean=FLAT, gaussian_noise=[3.0] * 9, defocus_blur=[0.5] * 8 + [9.0])
    for find in (findings.find_flat_source, findings.find_flat_diagonal):
        noise, blur = find(met)
        assert (noise.holds, blur.holds) == (True, False)
        assert "smaller in 100 % of 9 layers" in noise.evidence
        assert "smaller in 11 % of 9 layers" in blur.evidence
