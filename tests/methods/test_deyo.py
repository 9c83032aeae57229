"""DeYO against its reference implementation, in float64, and batches without kept images."""

from __future__ import annotations

import pytest
import torch

import driftlaw
from driftlaw.profiling import count_flops
from tests.methods.images import TERMS, batches
from tests.reference.deyo import ReferenceDeyo
from tests.reference.tolerance import assert_same_step


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"plpd_threshold": 0.0, "patches": 2},
        {"optimizer": "sgd", "learning_rate": 0.01, "plpd_threshold": -1.0},
        {"entropy_threshold": 0.3, "entropy_margin": 0.2, "plpd_threshold": -0.2, "learning_rate": 0.05},
    ],
    ids=str,
)
def test_steps_equal_the_reference(confident_network, settings):
    adapter = driftlaw.adapt(confident_network, "deyo", seed=7, **settings)
    reference = ReferenceDeyo(confident_network, **settings)
    generator = torch.Generator().manual_seed(7)
    kept = []
    for images in batches(5):
        output = adapter.step(images)
        order = torch.rand(6, settings.get("patches", 4) ** 2, generator=generator).argsort(dim=1)
        logits = reference.step(images, order)
        torch.testing.assert_close(output.logits, logits, rtol=0, atol=1e-11)
        assert output.diagnostics["kept"] == pytest.approx(reference.kept[1] / 6)
        assert_same_step(
            adapter.model, reference.model, reference.gradients, settings.get("learning_rate", 1e-3), terms=TERMS
        )
        kept.append(reference.kept)
    assert any(second > 0 for _, second in kept)
    assert any(second < 6 for _, second in kept)


@pytest.mark.parametrize("settings", [{"entropy_threshold": 1e-6}, {"plpd_threshold": 1.0}], ids=str)
def test_a_batch_without_kept_images_changes_nothing(confident_network, settings):
    adapter = driftlaw.adapt(confident_network, "deyo", plpd_threshold=-1.0)
    first, second = batches(2)
    assert adapter.step(first).diagnostics["kept"] > 0
    before = {name: value.clone() for name, value in adapter.model.named_parameters()}
    adapter.config = adapter.config.model_copy(update=settings)
    output = adapter.step(second)
    assert output.diagnostics["kept"] == 0
    assert output.logits.isfinite().all()
    assert all(torch.equal(value, before[name]) for name, value in adapter.model.named_parameters())
    assert all(state["step"] == 1 for state in adapter.optimizer.state.values())


def test_single_images_stay_finite(confident_network):
    adapter = driftlaw.adapt(confident_network, "deyo", entropy_threshold=1.0, plpd_threshold=-1.0)
    for images in batches(3):
        output = adapter.step(images[:1])
        assert output.logits.isfinite().all()
        assert output.diagnostics["kept"] == 1
    assert all(value.isfinite().all() for value in adapter.model.parameters())


def test_the_counted_cost_of_a_batch_that_is_kept_is_what_it_declares(network):
    adapter = driftlaw.adapt(network, "deyo", entropy_threshold=1.1, plpd_threshold=-1.0)
    _, forward = count_flops(lambda: adapter.predict(batches(1)[0]))
    _, step = count_flops(lambda: adapter(batches(1)[0]))
    assert step / forward == pytest.approx(adapter.forward_cost + adapter.backward_cost, rel=0.1)
