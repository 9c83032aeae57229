"""Conformance checks pass for a good method and fail for broken ones."""

import dataclasses

import pytest

import driftlaw.testing
from driftlaw.base import Adapter, StepOutput
from driftlaw.errors import UsageError
from driftlaw.testing import CHECKS, CheckFailed, CheckResult, check_method
from tests.testing.broken_methods import (
    BROKEN,
    ConfidentOnly,
    Good,
    LeavesGradients,
    NeedsBatch,
    PredictsAfterUpdate,
    SettingWithoutDefault,
    UnregisteredCounter,
    UpdatesRunningStats,
    UsesGlobalRng,
)

BY_NAME = {check.__name__: check for check in CHECKS}


@pytest.mark.parametrize("check", driftlaw.testing.CHECKS)
def test_good_method_passes(check):
    check(Good)


@pytest.mark.parametrize("check", driftlaw.testing.CHECKS)
def test_method_that_updates_on_confident_images_only_passes(check):
    check(ConfidentOnly)


def test_settings_decide_whether_there_are_confident_images():
    check = BY_NAME["updates_only_declared_parameters"]
    check(ConfidentOnly, {"threshold": 0.2})
    with pytest.raises(CheckFailed, match=r"no parameter changed in ten steps\. .*confident"):
        check(ConfidentOnly, {"threshold": 1e-9})


@pytest.mark.parametrize(
    ("check", "kind", "reason"), BROKEN, ids=[f"{check}-{kind.__name__}" for check, kind, _ in BROKEN]
)
def test_broken_method_fails_with_a_reason(check, kind, reason):
    with pytest.raises(Exception, match=reason):
        BY_NAME[check](kind)


def test_every_check_has_a_method_that_fails_it():
    assert set(BY_NAME) == {check for check, _, _ in BROKEN}


@pytest.mark.parametrize(
    ("kind", "failing"),
    [
        (UnregisteredCounter, {"reset_restores_initial_state", "save_and_load_continue_exactly"}),
        (UsesGlobalRng, {"global_rng_is_untouched"}),
        (NeedsBatch, {"single_image_works_or_is_rejected"}),
        (LeavesGradients, {"leaves_no_gradients"}),
    ],
)
def test_broken_method_fails_only_the_expected_checks(kind, failing):
    assert {result.name for result in check_method(kind) if not result.passed} == failing


def test_a_batch_of_one_image_causes_no_warning(recwarn):
    assert check_method("tent", {"statistics": "batch"}, only=["single_image_works_or_is_rejected"])[0].passed
    assert not recwarn


def test_only_runs_the_named_checks():
    results = check_method("source", only=["seed_determines_result", "supports_float64"])
    assert [result.name for result in results] == ["seed_determines_result", "supports_float64"]
    with pytest.raises(UsageError, match=r"Unknown check 'supports_float46'\. Did you mean 'supports_float64'"):
        check_method("source", only=["supports_float46"])


def test_logits_from_several_passes_count_as_before_the_update():
    class PredictsWithNoise(Good):
        def update(self, images, plan):
            noisy = self.model(images + plan.host[0] / 1000).detach()
            super().update(images, plan)
            return StepOutput(noisy)

    BY_NAME["predicts_before_update"](PredictsWithNoise)


def test_method_may_declare_that_it_predicts_after_the_update():
    class Declared(PredictsAfterUpdate):
        predicts_before_update = False

    BY_NAME["predicts_before_update"](Declared)


def test_results_are_immutable_and_in_the_order_of_checks():
    results = check_method("source")
    assert [result.name for result in results] == [check.__name__ for check in CHECKS]
    assert all(result.passed and result.reason == "" for result in results)
    with pytest.raises(dataclasses.FrozenInstanceError):
        results[0].passed = False


def test_exception_of_a_method_becomes_the_reason():
    class Failing(Adapter):
        name, title = "failing", "Failing"

        def update(self, images, plan):
            raise KeyError("momentum")

    results = {result.name: result for result in check_method(Failing)}
    result = results["logits_and_diagnostics_are_valid"]
    assert result == CheckResult(result.name, False, "Raised KeyError: 'momentum'", result.seconds)
    assert results["declares_metadata"].passed


def test_every_check_has_a_unique_name_and_a_one_line_description():
    assert len(BY_NAME) == len(CHECKS)
    for check in CHECKS:
        assert len(check.__doc__.splitlines()) == 1


def test_settings_are_passed_to_the_method_and_invalid_ones_rejected():
    with pytest.raises(CheckFailed, match="no parameter changed"):
        BY_NAME["updates_only_declared_parameters"](Good, {"learning_rate": 0.0})
    with pytest.raises(UsageError, match="Did you mean 'learning_rate'"):
        check_method(Good, {"lerning_rate": 0.1})


def test_setting_without_default_is_named():
    with pytest.raises(UsageError, match="amount"):
        check_method(SettingWithoutDefault)
    with pytest.raises(CheckFailed, match="no default: amount"):
        BY_NAME["declares_metadata"](SettingWithoutDefault, {"amount": 1.0})


def test_method_that_needs_train_data_receives_it():
    class NeedsTrainData(Good):
        needs_train_data = True

        def setup(self, train_data):
            super().setup(train_data)
            assert train_data.images([0, 5]).shape == (2, 16, 16, 3)
            assert len(train_data.labels) == len(train_data) > train_data.num_classes

    BY_NAME["logits_and_diagnostics_are_valid"](NeedsTrainData)


def test_method_that_adapts_nothing_passes_without_updates():
    class AdaptsNothing(Adapter):
        name, title = "adapts-nothing", "Adapts nothing"

        def update(self, images, plan):
            return StepOutput(self.model(images))

    BY_NAME["updates_only_declared_parameters"](AdaptsNothing)


def test_declared_running_statistics_may_change_and_nothing_else():
    class Declared(UpdatesRunningStats):
        updates_running_stats = True

    class DeclaredAndUpdatesHead(Declared):
        def update(self, images, plan):
            self.model.head.bias.data.add_(0.1)
            return super().update(images, plan)

    BY_NAME["updates_only_declared_parameters"](Declared)
    with pytest.raises(CheckFailed, match=r"^head\.bias changed"):
        BY_NAME["updates_only_declared_parameters"](DeclaredAndUpdatesHead)
