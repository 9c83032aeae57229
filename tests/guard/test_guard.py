"""Checks against the source model, and the actions that follow from them."""

import copy

import pytest
import torch

import driftlaw
from driftlaw.base.safe_steps import MIXED_SHARE
from driftlaw.errors import UsageError
from driftlaw.guard import GuardSettings
from driftlaw.guard.monitors import compare, confident_agreement, log_effective_classes, mean_entropy, skew
from driftlaw.testing.fixtures import MethodUnderTest, TinyStream, make_images, run_batches, tiny_model
from driftlaw.testing.snapshots import differences, state_of

QUICK = {"sample": 8, "check_images": 8}


def guarded(method="tent", **settings):
    return MethodUnderTest.create(method, {"guard": QUICK | settings}).adapter()


def actions(adapter):
    return [event.action for event in adapter.guard.events]


# --- monitors --------------------------------------------------------------------------------------------------------


def test_effective_classes_are_the_number_of_equally_predicted_classes():
    one_hot = 50 * torch.eye(4)
    assert log_effective_classes(one_hot).exp().item() == pytest.approx(4)
    assert log_effective_classes(one_hot[:2]).exp().item() == pytest.approx(2)
    assert mean_entropy(torch.zeros(3, 4)).item() == pytest.approx(torch.tensor(4.0).log().item())


def test_skew_is_positive_if_batch_statistics_spread_and_blur_predictions():
    certain_of_one = 50 * torch.eye(10)[[3] * 8]
    uncertain = torch.zeros(8, 10)
    # Certainty falls by log 10 and the predictions spread from one to ten classes.
    assert skew(certain_of_one, uncertain).item() == pytest.approx(1.3 * torch.tensor(10.0).log().item())
    assert skew(uncertain, certain_of_one) < 0


def test_agreement_counts_only_the_confident_half():
    reference = torch.tensor([[9.0, 0.0], [8.0, 0.0], [0.1, 0.0], [0.2, 0.0]])
    logits = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0]])
    assert confident_agreement(logits, reference).item() == 0.5


def test_without_batch_statistics_the_source_is_the_reference():
    stored, logits = 50 * torch.eye(4), 50 * torch.eye(4)[[0, 0, 0, 0]]
    check = compare(logits, stored, None, torch.tensor([0.25, float("nan")]))
    assert check.skew == 0
    assert check.classes == pytest.approx(0.25)
    assert check.agreement in (0.0, 0.5)
    assert check.distance == 0.25  # NaN: the distance from a weight that is 0


# --- actions ---------------------------------------------------------------------------------------------------------


def test_nothing_happens_on_a_harmless_stream_and_logits_are_those_without_a_guard():
    adapter, other = guarded("law", max_skew=10.0), MethodUnderTest.create("law").adapter()
    for one, two in zip(run_batches(adapter, range(6)), run_batches(other, range(6)), strict=True):
        assert torch.equal(one, two)
    assert not adapter.guard.counts
    assert adapter.guard.checks


def test_a_rate_that_is_too_high_is_reduced_until_updates_fit():
    adapter = MethodUnderTest.create("tent", {"learning_rate": 10.0, "guard": QUICK}).adapter()
    run_batches(adapter, range(30))
    assert adapter.guard.counts["skip_update"] >= 3
    assert adapter.guard.scale < 0.1
    assert adapter.guard.rejected == 0
    assert all(value.isfinite().all() for value in adapter.parameters())


def negate_last_norm(adapter):
    """Make all later updates harmful: each negates the scale of the last norm layer, and with it the features."""
    update = adapter.update

    def harmful(images, plan):
        output = update(images, plan)
        with torch.no_grad():
            adapter.model.norm.weight.copy_(-adapter.model.norm.weight.abs())
        return output

    adapter.update = harmful


def test_drift_returns_to_the_last_good_state_and_then_to_the_source():
    adapter = guarded(max_skew=10.0, max_update=100.0, shrink=0.5, min_agreement=0.6)
    run_batches(adapter, range(2))
    negate_last_norm(adapter)
    while not adapter.guard.counts:
        run_batches(adapter, range(2, 3))
    assert actions(adapter) == ["shrink_updates", "restore_snapshot"]
    assert (adapter.model.norm.weight > 0).all()  # a state from before the harmful updates
    assert adapter.guard.scale == 0.5
    while len(actions(adapter)) == 2:
        run_batches(adapter, range(2, 3))
    assert actions(adapter)[2:] == ["shrink_updates", "return_to_source"]
    assert torch.equal(adapter.model.norm.weight, adapter._initial_state["tensors"]["model.norm.weight"])


def test_after_a_return_to_the_source_the_adapted_weights_are_those_of_the_source():
    adapter = guarded(max_skew=10.0)
    before = {name: value.clone() for name, value in adapter.named_parameters()}
    run_batches(adapter, range(3))
    adapter.guard.alarms = 1
    adapter.guard._alarm(adapter, "a test")
    assert not differences(before, dict(adapter.named_parameters()))
    assert actions(adapter) == ["shrink_updates", "return_to_source"]


def test_a_skewed_stream_is_predicted_by_the_source_until_it_ends():
    adapter = guarded(max_skew=1e-9)
    adapter.guard.settings = adapter.guard.settings.model_copy(update={"max_skew": -1e9})  # every batch is skewed
    run_batches(adapter, range(4))
    assert adapter.guard.mode == "source"
    assert actions(adapter)[0] == "mixed_statistics"
    steps = adapter.steps
    images = make_images(5)
    stored, mixed = adapter.source_logits(images), adapter.source_logits(images, batch_share=MIXED_SHARE)
    assert not torch.equal(stored, mixed)
    assert torch.equal(adapter(images), min(stored, mixed, key=mean_entropy))
    assert adapter.steps == steps
    adapter.guard.settings = adapter.guard.settings.model_copy(update={"max_skew": 1e9})
    run_batches(adapter, range(5, 80))
    assert adapter.guard.mode == "adapt"
    assert adapter.steps > steps
    assert "batch_statistics" in actions(adapter)


def test_calibration_subtracts_the_skew_of_source_images():
    adapter = guarded(max_skew=10.0)
    images = make_images(7, count=64)
    adapter.guard.calibrate(adapter, images)
    expected = skew(adapter.source_logits(images), adapter.source_logits(images, batch_share=1.0)).item()
    assert adapter.guard.base_skew == pytest.approx(expected, abs=0.3)  # the mean over samples, not that of all images
    other = guarded(max_skew=10.0)
    run_batches(adapter, range(1))
    run_batches(other, range(1))
    assert adapter.guard.checks[0].skew == pytest.approx(other.guard.checks[0].skew - adapter.guard.base_skew)
    with pytest.raises(UsageError, match="at least 4 images, found 2"):
        adapter.guard.calibrate(adapter, images[:2])


@pytest.mark.parametrize("signal", [0, 1, 2], ids=["entropy", "classes", "fisher"])
def test_a_sudden_rise_of_a_signal_is_followed_by_a_check(signal):
    adapter = guarded("law", max_skew=10.0, check_images=10**6)
    guard = adapter.guard
    run_batches(adapter, range(12))
    guard.next_check = 10**9
    step = torch.tensor([0.0, 0.0, 1.0])  # Fisher information is a sum
    guard.signals = [torch.tensor([1.0, 0.5, 1.0]).double() + number * step for number in range(10)]
    assert not guard._signals_rose()
    guard.signals[-1][signal] += 3.0
    checks = [*guard.checks]
    run_batches(adapter, range(12, 13))
    assert len(guard.checks) == len(checks)  # the last ones are kept
    assert guard.checks != checks
    assert len(guard.signals) == 1  # a check starts a new list


def test_checks_are_more_frequent_far_from_the_source():
    near, far = (guarded(max_skew=10.0, min_agreement=0.0, min_classes=0.0, max_update=100.0) for _ in range(2))
    with torch.no_grad():
        far.model.norm.weight.mul_(1.9)
    for adapter in (near, far):
        adapter.guard.images = 400
        run_batches(adapter, range(1))
    assert far.guard.checks[-1].distance > 0.5 > near.guard.checks[-1].distance
    intervals = [adapter.guard.next_check - adapter.guard.images for adapter in (near, far)]
    assert intervals[1] == intervals[0] // 4


def test_updates_grow_again_after_checks_without_a_problem():
    adapter = guarded(max_skew=10.0, min_agreement=0.0, min_classes=0.0, recovery=2)
    adapter.guard._shrink(adapter, "a test")
    assert adapter.guard.scale == 0.25
    run_batches(adapter, range(60))
    assert adapter.guard.scale > 0.25
    assert "grow_updates" in actions(adapter)


def test_the_canary_raises_an_alarm():
    adapter = guarded(max_skew=10.0, max_update=100.0, min_agreement=0.0, canary_steps=2, canary_margin=0.3)
    images = make_images(50, count=16)
    adapter.guard.set_canary(images, adapter.source_logits(images).argmax(1))
    run_batches(adapter, range(2))
    assert not adapter.guard.counts
    negate_last_norm(adapter)
    run_batches(adapter, range(2, 4))
    assert "error on the canary" in adapter.guard.events[0].reason
    with pytest.raises(UsageError, match="as many labels"):
        adapter.guard.set_canary(images, torch.zeros(3))


# --- state, records, callbacks ---------------------------------------------------------------------------------------


def test_a_saved_state_contains_the_guard():
    adapter = guarded("law", max_skew=10.0)
    adapter.guard._shrink(adapter, "a test")
    run_batches(adapter, range(3))
    other = guarded("law", max_skew=10.0)
    other.load_state_dict(copy.deepcopy(adapter.state_dict()))
    assert other.guard.scale == 0.25
    assert actions(other) == actions(adapter)
    run_batches(adapter, range(3, 6))
    run_batches(other, range(3, 6))
    assert not differences(state_of(adapter), state_of(other))


def test_reset_also_resets_the_guard():
    adapter = guarded(max_skew=10.0)
    before = state_of(adapter)
    adapter.guard._shrink(adapter, "a test")
    run_batches(adapter, range(3))
    adapter.reset()
    assert not differences(before, state_of(adapter))


def test_states_of_adapters_with_and_without_a_guard_can_be_exchanged():
    adapter, plain = guarded("tent"), MethodUnderTest.create("tent").adapter()
    with pytest.warns(driftlaw.errors.DriftlawWarning, match="other settings: guard"):
        adapter.load_state_dict(plain.state_dict())
    with pytest.warns(driftlaw.errors.DriftlawWarning, match="other settings: guard"):
        plain.load_state_dict(adapter.state_dict())


def test_events_are_in_the_record_and_reach_callbacks(tmp_path):
    adapter = MethodUnderTest.create("tent", {"learning_rate": 10.0, "guard": True}).adapter()
    received = []

    class Collector:
        def on_step(self, adapter, output): ...

        def close(self): ...

        def on_guard_event(self, adapter, event):
            received.append(event)

    adapter.add_callback(Collector())
    record = driftlaw.run(TinyStream(), adapter, record=tmp_path / "run.jsonl")
    events = [event["action"] for line in record.batches for event in line.get("guard", [])]
    assert events == [event.action for event in received]
    assert record.closing["guard"] == dict(adapter.guard.counts)
    assert events[0] == "skip_update"
    assert "skip_update" in str(adapter.summary())


def test_a_guard_is_a_setting_of_every_method():
    assert driftlaw.adapt(tiny_model(), "tent", guard=GuardSettings(keep=1)).guard.settings.keep == 1
    assert driftlaw.adapt(tiny_model(), "tent").guard is None
    with pytest.raises(UsageError, match=r"guard\.GuardSettings\.max_update|max_update"):
        driftlaw.adapt(tiny_model(), "tent", guard={"max_update": -1})


# --- snapshots -------------------------------------------------------------------------------------------------------


def with_folder(folder):
    return guarded("law", max_skew=10.0, snapshots=str(folder), snapshot_steps=2, keep=2)


def test_the_last_states_are_kept_and_a_new_adapter_continues(tmp_path):
    adapter = with_folder(tmp_path)
    run_batches(adapter, range(8))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000000000006.pt", "step-000000000008.pt"]
    other = with_folder(tmp_path)
    assert other.steps == 8
    for one, two in zip(run_batches(adapter, range(8, 10)), run_batches(other, range(8, 10)), strict=True):
        assert torch.equal(one, two)


def test_a_damaged_state_is_passed_over_with_a_warning(tmp_path):
    run_batches(with_folder(tmp_path), range(8))
    newest = tmp_path / "step-000000000008.pt"
    newest.write_bytes(newest.read_bytes()[:1000])
    with pytest.warns(driftlaw.errors.DriftlawWarning, match="An older state is loaded instead"):
        assert with_folder(tmp_path).steps == 6


def test_after_a_reset_new_states_replace_those_with_more_steps(tmp_path):
    adapter = with_folder(tmp_path)
    run_batches(adapter, range(8))
    adapter.reset()
    run_batches(adapter, range(2))
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000000002.pt"]
    assert with_folder(tmp_path).steps == 2


def test_states_of_another_model_are_an_error_and_are_kept(tmp_path):
    run_batches(with_folder(tmp_path), range(2))
    with pytest.raises(UsageError, match=r"step-000000000002\.pt cannot be loaded.*another folder for snapshots"):
        guarded("tent", snapshots=str(tmp_path))
    assert len(list(tmp_path.iterdir())) == 1


def test_a_state_is_saved_once_although_the_source_model_predicts_after_it(tmp_path):
    adapter = with_folder(tmp_path)
    run_batches(adapter, range(2))
    (path,) = tmp_path.iterdir()
    path.unlink()
    adapter.guard.mode = "source"
    run_batches(adapter, range(2, 4))
    assert adapter.steps == 2
    assert not list(tmp_path.iterdir())


def test_predictions_continue_if_a_state_cannot_be_written(tmp_path):
    adapter = with_folder(tmp_path / "file" / "folder")
    (tmp_path / "file").write_text("not a folder")
    with pytest.warns(driftlaw.errors.DriftlawWarning, match="was not saved, and predictions continue: Cannot create"):
        outputs = run_batches(adapter, range(4))
    assert all(logits.isfinite().all() for logits in outputs)


# --- unusual input ---------------------------------------------------------------------------------------------------


@pytest.mark.small_batches
def test_single_frames_of_several_sizes_are_checked():
    adapter = driftlaw.adapt(tiny_model(), "tent", guard=QUICK)
    for number in range(12):
        assert adapter(make_images(number, count=1)[..., : 16 - number % 2 * 4]).isfinite().all()
    for number in range(8):
        adapter(make_images(number, count=1))
    assert adapter.guard.checks


@pytest.mark.small_batches
def test_a_bad_frame_before_the_first_update_gets_nan():
    adapter = driftlaw.adapt(tiny_model(), "tent", guard=True)
    assert adapter(make_images(0, count=1)).isfinite().all()
    assert adapter(torch.full((1, 3, 16, 16), torch.nan)).isnan().all()


@pytest.mark.parametrize("damage", ["shape", "values", "sample", "type"])
def test_a_damaged_state_of_the_guard_is_refused_and_changes_nothing(damage):
    adapter = guarded("tent", max_skew=10.0)
    run_batches(adapter, range(3))
    state = adapter.state_dict()
    guard = state["_extra_state"]["guard"]
    name = next(name for name in guard["good"] if name.startswith("model."))
    if damage == "shape":
        guard["good"][name] = torch.zeros(99)
    elif damage == "values":
        guard["good"][name].fill_(torch.nan)
    elif damage == "sample":
        guard["sample"] = [torch.zeros(2, 3, 16, 16)]
    else:
        guard["scale"] = "large"
    before = state_of(adapter)
    with pytest.raises(UsageError, match="The state of the guard is damaged"):
        adapter.load_state_dict(state)
    assert not differences(before, state_of(adapter))


def test_a_misspelt_setting_gets_a_suggestion():
    with pytest.raises(UsageError, match=r"settings for the guard:\n  - Unknown setting 'max_updat'.*'max_update'"):
        driftlaw.adapt(tiny_model(), "tent", guard={"max_updat": 0.1})
    with pytest.raises(UsageError, match=r"max_update = -1"):
        driftlaw.adapt(tiny_model(), "tent", guard={"max_update": -1})
