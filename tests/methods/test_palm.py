"""PALM against its reference implementation, in float64, and its selection of tensors."""

from __future__ import annotations

import pytest
import torch

import driftlaw
from driftlaw.components.augment import AugmentParams, augment
from driftlaw.profiling import count_flops
from tests.methods.images import TERMS, batches
from tests.reference.palm import ReferencePalm
from tests.reference.tolerance import assert_same_step

SOME_SELECTED = 0.12  # between the smallest and the largest gradient norm on the test images


@pytest.fixture
def network(confident_network):
    return confident_network


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"gradient_threshold": SOME_SELECTED, "entropy_threshold": 0.6},
        {"gradient_threshold": 0.06, "sensitivity_momentum": 0.1, "weight_decay": 5e-4, "temperature": 100.0},
        {"entropy_threshold": 10.0, "consistency_weight": 10.0, "learning_rate": 5e-5},
    ],
    ids=str,
)
def test_steps_equal_the_reference(network, settings):
    adapter = driftlaw.adapt(network, "palm", seed=7, **settings)
    reference = ReferencePalm(network, **settings)
    generator = torch.Generator().manual_seed(7)
    for images in batches(4):
        output = adapter.step(images)
        logits = reference.step(images, augment(images, AugmentParams.from_generator(generator)))
        torch.testing.assert_close(output.logits, logits, rtol=0, atol=1e-12)
        actual = dict(zip(adapter.trainable_names, output.diagnostics["layer_weights"].tolist(), strict=True))
        assert actual == pytest.approx(reference.weights, rel=1e-8, abs=1e-10)
        assert_same_step(
            adapter.model, reference.model, reference.gradients, reference.learning_rates, terms=TERMS, lr_rtol=1e-8
        )


def test_a_tensor_that_was_never_selected_is_frozen_and_one_that_was_keeps_its_weight(network):
    adapter = driftlaw.adapt(network, "palm", gradient_threshold=SOME_SELECTED)
    reference = ReferencePalm(network, gradient_threshold=SOME_SELECTED)
    selected, weights, ever = [], [], set()
    for images in batches(4):
        weights.append(adapter.step(images).diagnostics["layer_weights"])
        reference.step(images, images)
        selected.append(reference.selected)
        ever |= reference.selected
        for name, value in adapter.model.named_parameters():
            if name in reference.trainable:
                reference.trainable[name].data = value.data.clone()
    names = adapter.trainable_names
    assert 0 < len(ever) < len(names)
    assert {name for name, weight in zip(names, weights[-1], strict=True) if weight > 0} == ever
    moved = {name for name in names if not torch.equal(adapter.model.get_parameter(name), network.get_parameter(name))}
    assert moved == ever
    kept = [
        (step, index)
        for step in range(1, 4)
        for index, name in enumerate(names)
        if name in selected[step - 1] and name not in selected[step]
    ]
    assert kept
    assert all(weights[step][index] == weights[step - 1][index] for step, index in kept)


def test_weights_of_the_first_batch_follow_from_the_momentum(network):
    adapter = driftlaw.adapt(network, "palm", sensitivity_momentum=0.1)
    weights = adapter.step(batches(1)[0]).diagnostics["layer_weights"]
    for name, weight in zip(adapter.trainable_names, weights.tolist(), strict=True):
        # β/(1 − β), and more where the sensitivity is near ε; 1 for a tensor of zeros, which has no sensitivity
        expected = 0.1 / 0.9 if network.get_parameter(name).any() else 1.0
        assert expected <= weight < expected + 0.1


def test_a_batch_without_certain_images_has_a_finite_step_on_consistency_alone(network):
    adapter = driftlaw.adapt(network, "palm", entropy_threshold=0.0, consistency_weight=0.0)
    output = adapter.step(batches(1)[0])
    assert output.logits.isfinite().all()
    assert all(torch.equal(adapter.model.get_parameter(name), value) for name, value in network.named_parameters())
    adapter = driftlaw.adapt(network, "palm", entropy_threshold=0.0)
    adapter(batches(1)[0])
    changed = [not torch.equal(adapter.model.get_parameter(n), v) for n, v in network.named_parameters()]
    assert any(changed)
    assert all(value.isfinite().all() for value in adapter.model.parameters())


def test_a_single_image_gives_finite_logits(network):
    adapter = driftlaw.adapt(network, "palm", entropy_threshold=10.0)
    for images in batches(2):
        assert adapter(images[:1]).isfinite().all()
    assert all(value.isfinite().all() for value in adapter.model.parameters())


def test_the_counted_cost_is_what_it_declares(network):
    adapter = driftlaw.adapt(network, "palm")
    _, forward = count_flops(lambda: adapter.predict(batches(1)[0]))
    adapter(batches(1)[0])  # the first step has one more pass
    _, step = count_flops(lambda: adapter(batches(1)[0]))
    assert step / forward == pytest.approx(adapter.forward_cost + adapter.backward_cost, rel=0.1)
