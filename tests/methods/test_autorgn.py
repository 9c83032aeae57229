"""Auto-RGN against its reference implementation, in float64, and its properties."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import driftlaw
from driftlaw.errors import UsageError
from driftlaw.methods.autorgn import relative_norms
from driftlaw.profiling import count_flops
from tests.methods.images import TERMS, batches
from tests.reference.autorgn import ReferenceAutoRGN
from tests.reference.tolerance import assert_same_step


def group_norm_network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(1568, 4)
        )


def with_norm_bias(model: nn.Module) -> nn.Module:
    """Set a norm bias that starts at zero, for which the relative norm is undefined."""
    with torch.no_grad():
        model[1].bias.fill_(0.3)
    return model.double()


@pytest.mark.parametrize("learning_rate", [1e-3, 0.05])
@pytest.mark.parametrize("kind", ["batch norm", "group norm"])
def test_steps_equal_the_reference(network, kind, learning_rate):
    model = network if kind == "batch norm" else with_norm_bias(group_norm_network())
    adapter = driftlaw.adapt(model, "autorgn", learning_rate=learning_rate)
    reference = ReferenceAutoRGN(model, learning_rate=learning_rate)
    for images in batches(3):
        output = adapter.step(images)
        logits, weights = reference.step(images)
        torch.testing.assert_close(output.logits, logits, rtol=0, atol=1e-12)
        names = adapter.diagnostic_labels()["layer_weights"]
        actual = dict(zip(names, output.diagnostics["layer_weights"].tolist(), strict=True))
        assert actual == pytest.approx(weights, abs=1e-10)
        assert_same_step(
            adapter.model, reference.model, reference.gradients, reference.learning_rates, terms=TERMS, lr_rtol=1e-9
        )


def test_batch_norm_tensors_and_the_head_are_frozen(network):
    adapter = driftlaw.adapt(network, "autorgn", learning_rate=0.1)
    for images in batches(2):
        adapter(images)
    changed = [
        name for name, value in network.named_parameters() if not torch.equal(adapter.model.get_parameter(name), value)
    ]
    assert changed == [name for name, value in network.named_parameters() if value.ndim == 4]
    assert changed == adapter.diagnostic_labels()["layer_weights"]


def test_the_largest_relative_norm_learns_in_full(network):
    weights = driftlaw.adapt(network, "autorgn").step(batches(1)[0]).diagnostics["layer_weights"]
    assert weights.max() == 1
    assert weights.min() > 0


def test_relative_norms_are_those_of_gradient_over_value_and_zero_where_there_is_no_value():
    gradients = [torch.tensor([3.0, 4.0]), torch.tensor([[1.0]]), torch.zeros(2)]
    values = [torch.tensor([0.0, 2.0]), torch.tensor([[0.0]]), torch.ones(2)]
    assert relative_norms(gradients, values).tolist() == [2.5, 0.0, 0.0]


def test_a_batch_without_any_gradient_changes_nothing():
    model = group_norm_network().double()
    nn.init.zeros_(model[5].weight)
    adapter = driftlaw.adapt(model, "autorgn")
    output = adapter.step(batches(1)[0])
    assert output.diagnostics["layer_weights"].abs().sum() == 0
    assert all(torch.equal(adapter.model.get_parameter(name), value) for name, value in model.named_parameters())


def test_a_model_of_batch_norm_and_linear_layers_is_refused_with_a_reason():
    with pytest.raises(UsageError, match="Auto-RGN adapts Conv2d"):
        driftlaw.adapt(nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(12, 2)), "autorgn")


def test_the_counted_cost_is_what_it_declares(network):
    adapter = driftlaw.adapt(network, "autorgn")
    _, forward = count_flops(lambda: adapter.predict(batches(1)[0]))
    _, step = count_flops(lambda: adapter(batches(1)[0]))
    assert step / forward == pytest.approx(adapter.forward_cost + adapter.backward_cost, rel=0.1)
