"""Functions that need no labels, compared with direct computations, and the source model inside an adapter."""

from __future__ import annotations

import copy
import math
import pickle

import pytest
import torch
from torch import nn

import driftlaw
from driftlaw.base import Monitor
from driftlaw.base.diagnostics import SourceModel, agreement, class_shares, mean_entropy, relative_distances
from driftlaw.errors import UsageError
from driftlaw.testing.fixtures import SyntheticDataset, make_images, tiny_model
from driftlaw.testing.snapshots import differences, state_of
from tests.base.models import Recorder


def test_entropy_is_the_mean_of_minus_p_log_p():
    logits = torch.randn(5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = 0.0
    for row in logits.tolist():
        total = sum(math.exp(value) for value in row)
        expected -= sum(math.exp(value) / total * math.log(math.exp(value) / total) for value in row) / 5
    assert float(mean_entropy(logits)) == pytest.approx(expected, rel=1e-12)


def test_entropy_of_certain_predictions_is_zero_and_not_nan():
    assert float(mean_entropy(torch.tensor([[0.0, -math.inf], [900.0, 0.0]]))) == 0.0


def test_entropy_of_half_precision_logits_is_float32():
    logits = torch.zeros(2, 3, dtype=torch.bfloat16)
    assert mean_entropy(logits).dtype == torch.float32
    assert float(mean_entropy(logits)) == pytest.approx(math.log(3), rel=1e-6)


def test_class_shares_count_the_predictions():
    logits = torch.eye(4)[[0, 0, 2, 0, 3]]
    assert class_shares(logits).tolist() == pytest.approx([0.6, 0.0, 0.2, 0.2])


def test_class_shares_of_dense_logits_count_every_pixel():
    logits = torch.zeros(1, 2, 2, 2)
    logits[0, 1, 0, 0] = 1.0
    assert class_shares(logits).tolist() == [0.75, 0.25]


def test_agreement_is_the_share_of_equal_predictions():
    one, other = torch.eye(3)[[0, 1, 2, 2]], torch.eye(3)[[0, 2, 2, 2]]
    assert float(agreement(one, other)) == 0.75


def test_relative_distances_are_per_tensor_and_not_finite_for_a_zero_tensor():
    initial = [torch.zeros(2), torch.zeros(2), torch.full((2,), 2.0)]
    current = [torch.ones(2), torch.zeros(2), torch.full((2,), 3.0)]
    infinite, undefined, half = relative_distances(initial, current).tolist()
    assert (infinite, half) == (math.inf, 0.5)
    assert math.isnan(undefined)


@pytest.mark.parametrize("settings", [{"every": -1}, {"sample": 0}])
def test_an_impossible_monitor_is_refused(settings):
    with pytest.raises(UsageError, match="expected every >= 0 and sample >= 1"):
        Monitor(**settings)


def trained_statistics():
    model = tiny_model().train()
    with torch.no_grad():
        model(make_images(9))
    return model.eval()


@pytest.mark.parametrize("method", driftlaw.list_methods())
def test_source_logits_are_those_of_the_given_model_after_steps_of_any_method(method):
    model, images = trained_statistics(), make_images(5)
    adapter = driftlaw.adapt(model, method, train_data=SyntheticDataset())
    for index in range(2):
        adapter(make_images(index))
    with torch.no_grad():
        torch.testing.assert_close(adapter.source_logits(images), model(images), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("settings", [{"statistics": "mixed"}, {"statistics": "window"}, {"channels_last": "on"}])
def test_source_logits_do_not_depend_on_settings(settings):
    model, images = trained_statistics(), make_images(5)
    adapter = driftlaw.adapt(model, "tent", **settings)
    adapter(make_images(0))
    with torch.no_grad():
        torch.testing.assert_close(adapter.source_logits(images), model(images), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_source_logits_with_a_share_of_the_batch_normalize_with_mixed_statistics(share):
    model = tiny_model().double()
    adapter, images = driftlaw.adapt(model, "tent"), make_images(1).double()
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]

    def mix(norm, args):
        values = args[0].transpose(0, 1).flatten(1)
        mean, variance = values.mean(1), values.var(1, correction=0)
        between = share * (1 - share) * (mean - norm.running_mean) ** 2
        norm.running_mean = share * mean + (1 - share) * norm.running_mean
        norm.running_var = share * variance + (1 - share) * norm.running_var + between

    expected = adapter.source_logits(images)
    for norm in norms:
        norm.register_forward_pre_hook(mix)
    with torch.no_grad():
        torch.testing.assert_close(adapter.source_logits(images, batch_share=share), model.eval()(images))
    assert torch.equal(adapter.source_logits(images), expected)


def test_source_logits_change_nothing_in_the_adapter():
    adapter = driftlaw.adapt(tiny_model(), "law")
    adapter(make_images(0))
    before, rng = state_of(adapter), torch.get_rng_state()
    adapter.source_logits(make_images(1))
    assert differences(before, state_of(adapter)) == []
    assert torch.equal(rng, torch.get_rng_state())


def test_the_source_model_has_no_parameters_in_memory():
    model = tiny_model().eval()
    source = SourceModel(model)
    assert {value.device.type for value in source.model.parameters()} == {"meta"}
    assert not any(value is other for value in source.model.modules() for other in model.modules())


def test_source_logits_follow_copies_pickles_and_other_dtypes():
    model, images = trained_statistics(), make_images(5)
    adapter = driftlaw.adapt(model, "tent")
    adapter(make_images(0))
    expected = adapter.source_logits(images)
    assert torch.equal(copy.deepcopy(adapter).source_logits(images), expected)
    assert torch.equal(pickle.loads(pickle.dumps(adapter)).source_logits(images), expected)
    in_float64 = adapter.double().source_logits(images.double())
    assert in_float64.dtype == torch.float64
    torch.testing.assert_close(in_float64.float(), expected, rtol=1e-4, atol=1e-5)


def test_tied_parameters_stay_tied_in_the_source_model():
    first = nn.Conv2d(3, 3, 3, padding=1, bias=False)
    second = nn.Conv2d(3, 3, 3, padding=1, bias=False)
    second.weight = first.weight
    model = nn.Sequential(first, nn.BatchNorm2d(3), second, nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    adapter = driftlaw.adapt(model, "law", layers=["conv", "norm"], learning_rate=0.1)
    adapter(make_images(0))
    with torch.no_grad():
        torch.testing.assert_close(adapter.source_logits(make_images(1)), model(make_images(1)), rtol=1e-4, atol=1e-5)
        assert not torch.allclose(adapter.predict(make_images(1)), model(make_images(1)), rtol=1e-3)


def test_the_source_model_receives_the_keyword_arguments_of_a_call():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = tiny_model()

        def forward(self, images, scale):
            return scale * self.inner(images)

    adapter = driftlaw.adapt(Scaled(), "tent")
    adapter.monitor = Monitor(every=1)
    seen = adapter.add_callback(Recorder())
    adapter(make_images(), scale=2.0)
    assert 0 <= float(seen.outputs[0].diagnostics["source_agreement"]) <= 1
