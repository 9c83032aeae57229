"""SAR against its reference implementation, in float64: filters, perturbation, reset."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import driftlaw
from driftlaw.profiling import count_flops
from tests.methods.images import batches
from tests.reference.sar import ReferenceSar


def steps_of_both(network: nn.Module, settings: dict, count: int = 5) -> list[tuple[int, bool]]:
    """Compare steps with the reference; return for each the number of kept images and whether it was a reset."""
    adapter = driftlaw.adapt(network, "sar", **settings)
    reference = ReferenceSar(network, **settings)
    found = []
    for images in batches(count):
        output = adapter.step(images)
        logits, was_reset = reference.step(images)
        torch.testing.assert_close(output.logits, logits, rtol=0, atol=1e-11)
        assert output.diagnostics["kept"] == pytest.approx(reference.kept / 6)
        assert output.diagnostics["reset"] == was_reset
        for name, value in adapter.model.named_parameters():
            torch.testing.assert_close(value, reference.model.get_parameter(name), rtol=0, atol=1e-11)
        found.append((reference.kept, was_reset))
    return found


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"learning_rate": 0.05, "radius": 0.1, "loss_momentum": 0.5},
        {"entropy_threshold": 0.25, "learning_rate": 0.01},
        {"entropy_threshold": 0.8, "radius": 0.0, "reset_threshold": 0.0},
    ],
    ids=str,
)
def test_steps_equal_the_reference(confident_network, settings):
    found = steps_of_both(confident_network, settings)
    assert any(kept > 0 for kept, _ in found)
    assert not any(was_reset for _, was_reset in found)


def test_a_low_loss_resets_the_parameters_and_keeps_the_momentum(confident_network):
    settings = {"reset_threshold": 0.34, "learning_rate": 0.05}  # of ln 4: 0.47 nats
    found = steps_of_both(confident_network, settings, 6)
    resets = [was_reset for _, was_reset in found]
    assert True in resets
    assert False in resets
    adapter = driftlaw.adapt(confident_network, "sar", reset_threshold=1.0)
    output = adapter.step(batches(1)[0])
    assert output.diagnostics["reset"] == 1
    assert adapter.loss_average.isinf()
    same = [torch.equal(adapter.model.get_parameter(n), value) for n, value in confident_network.named_parameters()]
    assert all(same)
    assert any(state["momentum_buffer"].any() for state in adapter.optimizer.state.values())


def test_a_batch_without_reliable_images_changes_nothing_also_with_momentum(confident_network):
    adapter = driftlaw.adapt(confident_network, "sar", learning_rate=0.05)
    first, second = batches(2)
    adapter(first)
    before = {name: value.clone() for name, value in adapter.state_dict().items() if isinstance(value, torch.Tensor)}
    moments = [state["momentum_buffer"].clone() for state in adapter.optimizer.state.values()]
    assert any(value.any() for value in moments)
    adapter.config = adapter.config.model_copy(update={"entropy_threshold": 1e-6})
    output = adapter.step(second)
    assert output.logits.isfinite().all()
    assert output.diagnostics["kept"] == 0
    after = adapter.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    for value, state in zip(moments, adapter.optimizer.state.values(), strict=True):
        assert torch.equal(value, state["momentum_buffer"])


def test_a_first_batch_without_reliable_images_does_not_count(confident_network):
    adapter = driftlaw.adapt(confident_network, "sar", learning_rate=0.05)
    uncertain = driftlaw.adapt(confident_network, "sar", learning_rate=0.05, entropy_threshold=1e-6)
    uncertain(batches(1)[0])
    uncertain.config = adapter.config
    for images in batches(3)[1:]:
        assert torch.equal(adapter(images), uncertain(images))


def test_single_images_stay_finite(confident_network):
    adapter = driftlaw.adapt(confident_network, "sar", learning_rate=0.1, entropy_threshold=1.0)
    for images in batches(3):
        assert adapter(images[:1]).isfinite().all()
    assert all(value.isfinite().all() for value in adapter.model.parameters())


def test_the_counted_cost_is_what_it_declares(network):
    adapter = driftlaw.adapt(network, "sar")
    _, forward = count_flops(lambda: adapter.predict(batches(1)[0]))
    _, step = count_flops(lambda: adapter(batches(1)[0]))
    assert step / forward == pytest.approx(adapter.forward_cost + adapter.backward_cost, rel=0.15)
