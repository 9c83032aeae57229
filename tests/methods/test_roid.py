"""ROID against its reference implementation, in float64, and its behaviour on small batches."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import driftlaw
from driftlaw.components.augment import AugmentParams, augment
from driftlaw.profiling import count_flops
from tests.methods.images import TERMS, batches
from tests.reference.roid import ReferenceRoid
from tests.reference.tolerance import assert_same_sgd_step, assert_same_step


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"optimizer": "sgd", "learning_rate": 2.5e-4, "batch_size": 64},
        {"weighting": False, "prior_correction": False},
        {"consistency": False, "temperature": 1.0, "source_pull": 0.2},
        {"clip": 0.3, "probability_momentum": 0.5},
    ],
    ids=str,
)
def test_steps_equal_the_reference(network, settings):
    adapter = driftlaw.adapt(network, "roid", seed=7, **settings)
    reference = ReferenceRoid(network, **settings)
    generator = torch.Generator().manual_seed(7)
    for images in batches(3):
        augmented = augment(images, AugmentParams.from_generator(generator), sharp=True)
        output, expected = adapter.step(images), reference.step(images, augmented)
        torch.testing.assert_close(output.logits, expected, rtol=0, atol=1e-12)
        assert float(output.diagnostics["kept"]) == pytest.approx(len(reference.kept) / len(images))
        torch.testing.assert_close(adapter.mean_probabilities, reference.mean_probabilities, rtol=0, atol=1e-12)
        learning_rate = settings.get("learning_rate", 1e-3)
        if settings.get("optimizer") == "sgd":
            assert_same_sgd_step(adapter.model, reference.model)
        else:
            assert_same_step(adapter.model, reference.model, reference.gradients, learning_rate, terms=TERMS)


def test_some_images_are_dropped_by_default(network):
    adapter = driftlaw.adapt(network, "roid")
    assert 0 < float(adapter.step(batches(1)[0]).diagnostics["kept"]) < 1


@pytest.mark.filterwarnings("ignore:The statistics of a single image")
@pytest.mark.parametrize("make", [lambda images: images[:1], lambda images: images[:1].repeat(3, 1, 1, 1)])
def test_one_image_and_equal_images_give_finite_parameters(network, make):
    adapter = driftlaw.adapt(network, "roid")
    for images in batches(3):
        output = adapter.step(make(images))
        assert output.logits.isfinite().all()
        assert output.diagnostics["kept"] == 1
    assert all(value.isfinite().all() for value in adapter.model.parameters())
    assert adapter.mean_probabilities.isfinite().all()


@pytest.mark.parametrize("method", ["roid", "cmf", "eta", "rdumb"])
def test_a_model_with_a_convolution_as_its_head_is_adapted(method):
    layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 5, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    adapter = driftlaw.adapt(nn.Sequential(*layers).double(), method)
    assert adapter.mean_probabilities.shape == (5,)
    assert all(adapter(images).isfinite().all() for images in batches(2))


def test_a_pull_of_one_returns_to_the_source_model(network):
    adapter = driftlaw.adapt(network, "roid", source_pull=1.0)
    adapter(batches(1)[0])
    assert all(torch.equal(adapter.model.get_parameter(name), value) for name, value in network.named_parameters())


def test_predict_returns_the_logits_of_the_next_step(network):
    adapter = driftlaw.adapt(network, "roid")
    first, second = batches(2)
    adapter(first)
    torch.testing.assert_close(adapter.predict(second), adapter(second), rtol=0, atol=1e-12)


def test_the_declared_cost_is_that_of_a_step_which_keeps_half_of_the_images(network):
    adapter = driftlaw.adapt(network, "roid")
    (images,) = batches(1)
    _, forward = count_flops(lambda: adapter.model(images))
    adapter.step(images)  # the first step has one more pass
    output, step = count_flops(lambda: adapter.step(images))
    kept = float(output.diagnostics["kept"])
    assert step / forward == pytest.approx(2 * (1 + kept), rel=0.1)
    assert adapter.forward_cost + adapter.backward_cost == 2 * (1 + 0.5)
