"""Diagnostics of every method, callbacks, and summary."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

import driftlaw
from driftlaw.base import DIAGNOSTICS, Monitor, StepOutput
from driftlaw.errors import UsageError
from driftlaw.testing.fixtures import CLASSES, SyntheticDataset, make_images, run_batches, tiny_model
from driftlaw.testing.snapshots import differences, state_of
from tests.base.models import Recorder, small_model
from tests.testing.broken_methods import Good

EVERY_STEP, MEASURED = set(DIAGNOSTICS[:3]), set(DIAGNOSTICS[3:])


@pytest.mark.parametrize("method", driftlaw.list_methods())
def test_every_method_has_the_diagnostics_of_its_logits(method):
    adapter = driftlaw.adapt(tiny_model(), method, train_data=SyntheticDataset())
    output = adapter.step(make_images())
    assert set(output.diagnostics) & set(DIAGNOSTICS) == EVERY_STEP
    counts = torch.bincount(output.logits.argmax(1), minlength=CLASSES)
    assert output.diagnostics["class_shares"].tolist() == pytest.approx((counts / len(output.logits)).tolist())
    assert int(output.diagnostics["predicted_classes"]) == int((counts > 0).sum())
    probabilities = output.logits.double().softmax(1)
    expected = -(probabilities * probabilities.log()).sum(1).mean()
    assert float(output.diagnostics["entropy"]) == pytest.approx(float(expected), rel=1e-4)


def test_more_than_a_hundred_classes_have_no_shares():
    for classes, expected in ((100, True), (101, False)):
        model = nn.Sequential(nn.Conv2d(3, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(2 * 196, classes))
        diagnostics = driftlaw.adapt(model, "tent").step(make_images()).diagnostics
        assert ("class_shares" in diagnostics) == expected
        assert "predicted_classes" in diagnostics


def test_a_diagnostic_of_the_method_replaces_the_one_of_the_same_name():
    class OwnEntropy(Good):
        def update(self, images, plan):
            return StepOutput(super().update(images, plan).logits, {"entropy": 7.0})

    assert OwnEntropy(small_model()).step(make_images()).diagnostics["entropy"] == 7.0


def test_with_a_window_the_diagnostics_are_those_of_the_new_images():
    adapter = driftlaw.adapt(tiny_model(), "norm", statistics="window", window=16)
    for index in range(2):
        output = adapter.step(make_images(index, count=2))
    assert float(output.diagnostics["class_shares"].sum()) == 1.0
    assert adapter.summary()["images"] == 4


# --- measured steps --------------------------------------------------------------------------------------------------


def test_the_first_and_every_third_step_are_measured(adapter):
    adapter.monitor = Monitor(every=3, sample=4)
    outputs = [adapter.step(make_images(index)) for index in range(7)]
    assert [set(output.diagnostics) >= MEASURED for output in outputs] == [True, False, False] * 2 + [True]


def test_measured_values_compare_the_step_with_the_source_model():
    model, images = tiny_model().eval(), make_images(3)
    adapter = driftlaw.adapt(model, "tent", learning_rate=0.1)
    adapter(make_images(0))
    adapter.monitor = Monitor(every=1, sample=4)
    output = adapter.step(images)
    with torch.no_grad():
        source = model(images[::2]).argmax(1)
    expected = (output.logits[::2].argmax(1) == source).float().mean()
    assert float(output.diagnostics["source_agreement"]) == float(expected)
    parameters = dict(model.named_parameters())
    moved = dict(zip(adapter.trainable_names, output.diagnostics["layer_distance"].tolist(), strict=True))
    name = next(name for name in moved if name.endswith("weight"))
    difference = adapter.model.get_parameter(name) - parameters[name]
    assert moved[name] == pytest.approx(float(difference.detach().norm() / parameters[name].detach().norm()), rel=1e-5)
    assert moved[name] > 0


@pytest.mark.parametrize("method", driftlaw.list_methods())
def test_measuring_changes_neither_logits_nor_state(method):
    plain, measured = (driftlaw.adapt(tiny_model(), method, train_data=SyntheticDataset()) for _ in range(2))
    measured.monitor = Monitor(every=1)
    logits = run_batches(plain, range(3))
    assert differences(logits, run_batches(measured, range(3))) == []
    assert differences(state_of(plain), state_of(measured)) == []


def test_a_method_that_trains_nothing_has_no_layer_distance():
    adapter = driftlaw.adapt(tiny_model(), "source")
    adapter.monitor = Monitor(every=1)
    diagnostics = adapter.step(make_images()).diagnostics
    assert diagnostics["source_agreement"] == 1.0
    assert "layer_distance" not in diagnostics


def test_a_resumed_adapter_measures_the_same_steps(adapter):
    other = Good(small_model())
    for each in (adapter, other):
        each.monitor = Monitor(every=2)
    adapter(make_images(0))
    other.load_state_dict(adapter.state_dict())
    assert ["source_agreement" in other.step(make_images(index)).diagnostics for index in (1, 2)] == [False, True]


# --- callbacks -------------------------------------------------------------------------------------------------------


def test_a_callback_receives_every_finished_step(adapter):
    seen = adapter.add_callback(Recorder())
    outputs = [adapter.step(make_images(index)) for index in range(3)]
    assert seen.steps == [1, 2, 3]
    assert all(one is other for one, other in zip(outputs, seen.outputs, strict=True))
    adapter.predict(make_images())
    assert seen.steps == [1, 2, 3]


def test_a_step_is_complete_if_a_callback_raises(adapter):
    class Failing(Recorder):
        def on_step(self, adapter, output):
            raise RuntimeError("disk full")

    other = copy.deepcopy(adapter)
    adapter.add_callback(Failing())
    with pytest.raises(RuntimeError, match="disk full"):
        adapter(make_images(0))
    other(make_images(0))
    assert differences(state_of(adapter), state_of(other)) == []
    adapter.callbacks.clear()
    assert torch.equal(adapter(make_images(1)), other(make_images(1)))


def test_callbacks_stay_after_reset_and_load(adapter):
    seen = adapter.add_callback(Recorder())
    state = copy.deepcopy(adapter.state_dict())
    adapter(make_images())
    adapter.reset()
    adapter.load_state_dict(state)
    adapter(make_images())
    assert seen.steps == [1, 1]


def test_callbacks_are_not_saved_copied_or_pickled(adapter):
    keys = set(adapter.state_dict())
    adapter.add_callback(Recorder())
    assert set(adapter.state_dict()) == keys
    for other in (copy.deepcopy(adapter), pickle.loads(pickle.dumps(adapter))):
        assert other.callbacks == []
        other.add_callback(Recorder())
    assert len(adapter.callbacks) == 1


def test_close_closes_and_removes_the_callbacks(adapter):
    seen = adapter.add_callback(Recorder())
    adapter.close()
    adapter(make_images())
    assert seen.closed
    assert seen.steps == []


@pytest.mark.parametrize("wrong", [Recorder, print, "steps.csv"])
def test_what_is_no_callback_is_refused(adapter, wrong):
    with pytest.raises(UsageError, match=r"methods on_step\(adapter, output\) and close\(\)"):
        adapter.add_callback(wrong)


def test_a_callback_works_under_inference_mode(adapter):
    adapter.add_callback(Recorder())
    with torch.inference_mode():
        adapter(make_images(0))
    adapter(make_images(1))
    assert adapter.summary()["images"] == 16


# --- summary ---------------------------------------------------------------------------------------------------------


def test_summary_before_the_first_step(adapter):
    summary = adapter.summary()
    assert (summary["method"], summary["steps"], summary["images"], summary["adapted_tensors"]) == ("Good", 0, 0, 2)
    assert str(summary).splitlines() == [
        "Good: 0 steps, 0 images",
        "adapted: 2 of 6 tensors, 8 of 3,260 parameters",
        "BatchNorm statistics: batch",
    ]


def test_summary_has_means_of_the_first_and_last_steps(adapter):
    seen = adapter.add_callback(Recorder())
    run_batches(adapter, range(25))
    entropies = [float(output.diagnostics["entropy"]) for output in seen.outputs]
    summary = adapter.summary()
    assert summary["entropy_at_start"] == pytest.approx(sum(entropies[:10]) / 10)
    assert summary["entropy"] == pytest.approx(sum(entropies[15:]) / 10)
    shares = torch.stack([output.diagnostics["class_shares"] for output in seen.outputs[15:]]).mean(0)
    assert summary["predicted_classes"] == int((shares > 0).sum())
    assert summary["most_predicted_share"] == pytest.approx(float(shares.max()))
    assert (summary["steps"], summary["images"], summary["compared_images"]) == (25, 200, 8)


def test_summary_of_few_steps_compares_their_halves(adapter):
    seen = adapter.add_callback(Recorder())
    run_batches(adapter, range(5))
    entropies = [float(output.diagnostics["entropy"]) for output in seen.outputs]
    summary = adapter.summary()
    assert summary["entropy_at_start"] == pytest.approx(sum(entropies[:2]) / 2)
    assert summary["entropy"] == pytest.approx(sum(entropies[3:]) / 2)


def test_summary_lists_the_tensors_that_moved_most(adapter):
    adapter(make_images())
    with torch.no_grad():
        adapter.model.get_parameter("1.weight").add_(3.0)
    distances = adapter.summary()["largest_distances"]
    assert list(distances) == ["1.weight"]  # the bias was zero, so its relative distance is infinite
    assert distances["1.weight"] == pytest.approx(3.0, rel=0.1)
    assert "largest distances from the source model: 1.weight 3" in str(adapter.summary())


def test_summary_starts_again_after_reset(adapter):
    adapter(make_images())
    adapter.reset()
    assert "entropy" not in adapter.summary()
    adapter(make_images(count=3))
    assert adapter.summary()["images"] == 3


def test_summary_changes_nothing(adapter):
    adapter(make_images())
    before = state_of(adapter)
    adapter.summary()
    assert differences(before, state_of(adapter)) == []


def test_summary_names_the_statistics():
    assert driftlaw.adapt(tiny_model(), "source").summary()["statistics"] == "stored"
    assert driftlaw.adapt(tiny_model(), "tent", statistics="mixed").summary()["statistics"] == "mixed"
    without = nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(2 * 196, 4))
    assert driftlaw.adapt(without, "source").summary()["statistics"] == "no BatchNorm layers"
