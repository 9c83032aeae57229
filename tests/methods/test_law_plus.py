"""LAW+ against its reference implementation, in float64, for every ingredient."""

from __future__ import annotations

import copy
import math

import pytest
import torch

import driftlaw
from driftlaw.components.augment import AugmentParams, augment
from driftlaw.components.parameters import select_parameters
from driftlaw.execution.batch_statistics import batch_norm_layers
from driftlaw.methods.law_plus import LawPlus
from driftlaw.models import build_model
from driftlaw.profiling import count_flops
from tests.methods.images import TERMS, batches
from tests.reference.law_plus import ReferenceLawPlus
from tests.reference.tolerance import assert_same_step

INGREDIENTS = [
    {},
    {"loss": "entropy", "weighting": False, "kept_share": 1.0, "symmetric": True, "anchor": 0.0, "tau": 0.6},
    {"fisher_every": 2, "fisher_settling": 1, "fisher_decay": 0.5, "clip": 0.3},
    {"anchor": 0.2, "prior_correction": False, "temperature": 1.0},
    {"adapted_share": 1.0, "kept_share": 0.3},
    {"adapted_share": 0.3, "consistency_weight": 0.0, "probability_momentum": 0.5},
]


@pytest.mark.parametrize("settings", INGREDIENTS, ids=str)
def test_steps_equal_the_reference(network, settings):
    adapter = driftlaw.adapt(network, "law_plus", seed=7, **settings)
    reference = ReferenceLawPlus(network, **settings)
    generator = torch.Generator().manual_seed(7)
    for images in batches(4):
        augmented = augment(images, AugmentParams.from_generator(generator))
        output, (expected, weights) = adapter.step(images), reference.step(images, augmented)
        torch.testing.assert_close(output.logits, expected, rtol=0, atol=1e-12)
        found = dict(
            zip(adapter.diagnostic_labels()["layer_weights"], output.diagnostics["layer_weights"], strict=True)
        )
        assert {name: float(weight) for name, weight in found.items()} == pytest.approx(weights, rel=1e-9, abs=1e-12)
        torch.testing.assert_close(adapter.mean_probabilities, reference.mean_probabilities, rtol=0, atol=1e-12)
        rates = reference.learning_rates
        assert_same_step(adapter.model, reference.model, reference.gradients, rates, terms=TERMS, lr_rtol=1e-9)


@pytest.mark.parametrize(("model", "rate"), [("wrn_10_1", 0.03), ("fpn_wrn_10_1", 0.001)])
def test_the_rate_is_lower_for_logits_per_pixel(model, rate):
    network = build_model(model, num_classes=5)
    assert driftlaw.adapt(network, "law_plus").config.learning_rate == rate
    assert driftlaw.adapt(network, "law_plus", learning_rate=0.1).config.learning_rate == 0.1


def test_steps_are_relative_to_the_scale_of_the_parameters(network):
    """Convolutions before BatchNorm can be multiplied by a number without another change of the model."""
    for layer in batch_norm_layers(network):
        layer.eps = 1e-12
    scaled = copy.deepcopy(network)
    with torch.no_grad():
        for value in select_parameters(scaled, ["conv"]).values():
            value.mul_(8)
    first, second = (driftlaw.adapt(each, "law_plus", statistics="batch", seed=1) for each in (network, scaled))
    for images in batches(3):
        # Not equal, because the ε of (7) is not scaled.
        torch.testing.assert_close(first(images), second(images), rtol=0, atol=1e-4)


def test_layers_near_the_output_are_not_adapted(network):
    adapter = driftlaw.adapt(network, "law_plus", adapted_share=0.5)
    for images in batches(2):
        adapter(images)
    layers = list(select_parameters(network, ["conv", "norm"]))
    moved = [n for n in layers if not torch.equal(adapter.model.get_parameter(n), network.get_parameter(n))]
    assert len(moved) > 2
    assert set(moved) <= set(layers[: math.ceil(len(layers) / 2)])


def test_an_anchor_of_one_returns_to_the_source_model(network):
    adapter = driftlaw.adapt(network, "law_plus", anchor=1.0)
    adapter(batches(1)[0])
    for name, value in network.named_parameters():
        torch.testing.assert_close(adapter.model.get_parameter(name), value, rtol=0, atol=1e-15)


def test_the_anchor_bounds_the_distance_from_the_source_model(network):
    """A step changes an entry by at most η, so that its distance stays below η·(1 − α)/α."""
    adapter = driftlaw.adapt(network, "law_plus", learning_rate=0.05, anchor=0.5)
    for images in batches(8):
        adapter(images)
    with torch.no_grad():
        distance = max((adapter.model.get_parameter(n) - v).abs().max() for n, v in network.named_parameters())
    assert 0.01 < distance < 0.05


@pytest.mark.filterwarnings("ignore:The statistics of a single image")
@pytest.mark.parametrize("make", [lambda images: images[:1], lambda images: images[:1].repeat(3, 1, 1, 1)])
def test_one_image_and_equal_images_give_finite_parameters(network, make):
    adapter = driftlaw.adapt(network, "law_plus", statistics="batch")
    for images in batches(3):
        assert adapter.step(make(images)).logits.isfinite().all()
    assert all(value.isfinite().all() for value in adapter.model.parameters())


def test_predict_returns_the_logits_of_the_next_step(network):
    adapter = driftlaw.adapt(network, "law_plus")
    first, second = batches(2)
    adapter(first)
    torch.testing.assert_close(adapter.predict(second), adapter(second), rtol=0, atol=1e-12)


def test_the_declared_cost_is_that_of_steps_with_scores_on_every_tenth(network):
    adapter = driftlaw.adapt(network, "law_plus", fisher_settling=1)
    (images,) = batches(1)
    _, forward = count_flops(lambda: adapter.model(images))
    scored, _, unscored = (count_flops(lambda: adapter.step(images))[1] / forward for _ in range(3))
    assert (scored + 9 * unscored) / 10 == pytest.approx(LawPlus.forward_cost + LawPlus.backward_cost, rel=0.1)
