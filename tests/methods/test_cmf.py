"""CMF against its reference implementation, in float64, and its filter."""

from __future__ import annotations

import pytest
import torch

import driftlaw
from driftlaw.components.augment import AugmentParams, augment
from tests.methods.images import TERMS, batches
from tests.reference.roid import ReferenceCmf
from tests.reference.tolerance import assert_same_sgd_step, assert_same_step


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"optimizer": "sgd", "learning_rate": 2.5e-4},
        {"process_noise": 2.0, "alpha": 0.9, "source_pull": 0.5},  # β is 0.94 to 0.98
        {"process_noise": 10.0},  # β is at its lower limit
        {"process_noise": 1e-4, "prior_correction": False},  # β is 1
    ],
    ids=str,
)
def test_steps_equal_the_reference(network, settings):
    adapter = driftlaw.adapt(network, "cmf", seed=7, **settings)
    reference = ReferenceCmf(network, **settings)
    generator = torch.Generator().manual_seed(7)
    for images in batches(3):
        augmented = augment(images, AugmentParams.from_generator(generator), sharp=True)
        output, expected = adapter.step(images), reference.step(images, augmented)
        torch.testing.assert_close(output.logits, expected, rtol=0, atol=1e-12)
        assert float(adapter.variance) == pytest.approx(reference.variance, abs=1e-12)
        learning_rate = settings.get("learning_rate", 1e-3)
        # The hidden parameters get a share of the step's rounding error, as the parameters do.
        for hidden, expected_hidden in zip(adapter.parameter_state("hidden"), reference.hidden, strict=True):
            torch.testing.assert_close(hidden, expected_hidden, rtol=0, atol=2 * learning_rate * (1 - reference.beta))
        if settings.get("optimizer") == "sgd":
            assert_same_sgd_step(adapter.model, reference.model)
        else:
            assert_same_step(adapter.model, reference.model, reference.gradients, learning_rate, terms=TERMS)
        reference.hidden = [value.clone() for value in adapter.parameter_state("hidden")]


@pytest.mark.parametrize(("scalars", "settled"), [(17_952, 0.961), (25_216, 0.953), (53_120, 0.928)])
def test_beta_settles_at_the_value_of_the_recursion(network, scalars, settled):
    """The numbers of norm scalars are those of WRN-28-10, ResNeXt-29 and ResNet-50."""
    adapter = driftlaw.adapt(network, "cmf", consistency=False)
    own = sum(value.numel() for value in adapter.trainable_parameters())
    adapter = driftlaw.adapt(network, "cmf", consistency=False, process_noise=0.005 * scalars / own)
    (images,) = batches(1)
    q, before = 0.005 * scalars / 38_400, 0.0
    for _ in range(60):
        before = 0.99**2 * float(adapter.variance) + q
        adapter.step(images[:2])
    assert float(adapter.variance) / before == pytest.approx(settled, abs=1e-3)


@pytest.mark.filterwarnings("ignore:The statistics of a single image")
def test_one_image_gives_finite_parameters_and_reset_clears_the_variance(network):
    adapter = driftlaw.adapt(network, "cmf")
    for images in batches(2):
        assert adapter.step(images[:1]).logits.isfinite().all()
    assert all(value.isfinite().all() for value in adapter.model.parameters())
    assert adapter.variance > 0
    adapter.reset()
    assert adapter.variance == 0
    assert all(torch.equal(a, b) for a, b in zip(*map(adapter.parameter_state, ("hidden", "source")), strict=True))
