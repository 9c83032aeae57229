"""Tests of tools.results.layer_profiles."""

import numpy as np
import pytest

from tests.reports.example_records import make_record
from tests.reports.layer_records import EARLY, FLAT, LATE, LAYERS, make_layer_record
from tools.results.layer_profiles import by_model, layer_profiles, seeds_of


def test_profile_has_the_values_of_the_last_step():
    (profile,) = layer_profiles([make_layer_record("defocus_blur", weights=EARLY)], "layer_weights")
    assert (profile.dataset, profile.model, profile.domain) == ("cifar10-c", "wrn_16_1", "defocus_blur")
    assert profile.values == pytest.approx(EARLY)
    assert (profile.layers, profile.steps) == (tuple(LAYERS), 4)


def test_seeds_are_averaged():
    records = [make_layer_record("fog", weights=weights, seed=seed) for seed, weights in enumerate((EARLY, LATE), 1)]
    (profile,) = layer_profiles(records, "layer_weights")
    assert profile.values == pytest.approx(np.mean([EARLY, LATE], axis=0))
    assert seeds_of([profile]) == "1, 2"


def test_domain_counts_only_at_the_start_or_after_a_reset():
    stream = make_record("law", {"fog": 10, "snow": 20}, layers=LAYERS)
    assert [profile.domain for profile in layer_profiles([stream], "layer_weights")] == ["fog"]
    reset = make_record("law", {"fog": 10, "snow": 20}, layers=LAYERS, header={"reset_on": "domain"})
    assert [profile.domain for profile in layer_profiles([reset], "layer_weights")] == ["fog", "snow"]


def test_methods_without_the_diagnostic_have_no_profile():
    assert layer_profiles([make_record("tent"), make_layer_record("fog")], "layer_sharpness") == []


def test_early_share_and_evenness_of_known_weights():
    early, flat = layer_profiles(
        [make_layer_record("fog", weights=EARLY), make_layer_record("snow", weights=FLAT)], "layer_weights"
    )
    assert early.early_share == pytest.approx(2.7 / 3.15)
    assert flat.early_share == pytest.approx(1 / 3)
    assert flat.evenness == pytest.approx(1.0)
    assert early.evenness < 0.9
    (single,) = layer_profiles([make_layer_record("fog", weights=[1.0] + [0.0] * 8)], "layer_weights")
    assert single.evenness == 0.0


def test_profiles_are_grouped_by_dataset_and_model():
    records = [make_layer_record("fog"), make_layer_record("snow")]
    other = make_layer_record("fog", header={"model": {"name": "wrn_28_10"}})
    grouped = by_model(layer_profiles([*records, other], "layer_weights"))
    assert {name: list(domains) for name, domains in grouped.items()} == {
        "cifar10-c, wrn_16_1": ["fog", "snow"],
        "cifar10-c, wrn_28_10": ["fog"],
    }


def test_layers_without_labels_are_numbered():
    record = make_layer_record("fog")
    record.header["fact_labels"] = {}
    (profile,) = layer_profiles([record], "layer_weights")
    assert profile.layers[:2] == ("layer 0", "layer 1")
