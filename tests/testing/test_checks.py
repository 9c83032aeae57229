"""The kit lets good methods pass and catches broken ones."""

import dataclasses

import pytest

import driftlaw.testing
from driftlaw.base import Adapter, StepOutput
from driftlaw.errors import UsageError
from driftlaw.testing import CHECKS, CheckFailed, CheckResult, check_method
from tests.testing.broken_methods import (
    BROKEN,
    Counting,
    Dicing,
    Good,
    Sociable,
    Tracking,
    Untidy,
    WithoutDefault,
)

BY_NAME = {check.__name__: check for check in CHECKS}


@pytest.mark.parametrize("check", driftlaw.testing.CHECKS)
def test_a_good_method_passes(check):
    check(Good)


@pytest.mark.parametrize(
    ("check", "kind", "reason"), BROKEN, ids=[f"{check}-{kind.__name__}" for check, kind, _ in BROKEN]
)
def test_a_broken_method_is_caught_with_a_reason(check, kind, reason):
    with pytest.raises(Exception, match=reason):
        BY_NAME[check](kind)


def test_every_check_has_a_method_that_breaks_it():
    assert set(BY_NAME) == {check for check, _, _ in BROKEN}


@pytest.mark.parametrize(
    ("kind", "failing"),
    [
        (Counting, {"reset_equals_fresh", "saving_and_loading_changes_nothing"}),
        (Dicing, {"the_global_random_state_is_not_touched"}),
        (Sociable, {"a_batch_of_one_works_or_is_refused"}),
        (Untidy, {"no_stale_gradient_is_left_behind"}),
    ],
)
def test_a_broken_method_fails_what_it_breaks_and_nothing_else(kind, failing):
    assert {result.name for result in check_method(kind) if not result.passed} == failing


def test_results_are_frozen_and_in_the_order_of_the_list():
    results = check_method("source")
    assert [result.name for result in results] == [check.__name__ for check in CHECKS]
    assert all(result.passed and result.reason == "" and result.seconds > 0 for result in results)
    with pytest.raises(dataclasses.FrozenInstanceError):
        results[0].passed = False


def test_what_a_method_raises_becomes_the_reason():
    class Failing(Adapter):
        name, title = "failing", "Failing"

        def update(self, images, plan):
            raise KeyError("momentum")

    results = {result.name: result for result in check_method(Failing)}
    result = results["answers_have_the_right_shape_and_are_finite"]
    assert result == CheckResult(result.name, False, "raised KeyError: 'momentum'", result.seconds)
    assert results["it_says_what_it_is"].passed


def test_every_check_has_a_name_and_a_one_line_description():
    assert len(BY_NAME) == len(CHECKS)
    for check in CHECKS:
        assert len(check.__doc__.splitlines()) == 1


def test_settings_reach_the_method_and_wrong_ones_are_refused_at_once():
    with pytest.raises(CheckFailed, match="nothing moved"):
        BY_NAME["only_what_it_says_learns_has_moved"](Good, {"learning_rate": 0.0})
    with pytest.raises(UsageError, match="Did you mean 'learning_rate'"):
        check_method(Good, {"lerning_rate": 0.1})


def test_a_setting_without_default_is_named():
    with pytest.raises(UsageError, match="amount"):
        check_method(WithoutDefault)
    with pytest.raises(CheckFailed, match="no default: amount"):
        BY_NAME["it_says_what_it_is"](WithoutDefault, {"amount": 1.0})


def test_a_method_that_needs_its_source_gets_one():
    class Needy(Good):
        needs_train_data = True

        def setup(self, train_data):
            super().setup(train_data)
            assert train_data.images([0, 5]).shape == (2, 16, 16, 3)
            assert len(train_data.labels) == len(train_data) > train_data.num_classes

    BY_NAME["answers_have_the_right_shape_and_are_finite"](Needy)


def test_a_method_that_learns_nothing_need_not_move():
    class Plain(Adapter):
        name, title = "plain", "Plain"

        def update(self, images, plan):
            return StepOutput(self.model(images))

    BY_NAME["only_what_it_says_learns_has_moved"](Plain)


def test_statistics_may_move_where_the_method_says_so_and_nothing_else_may():
    class Open(Tracking):
        updates_running_stats = True

    class OpenAndReaching(Open):
        def update(self, images, plan):
            self.model.head.bias.data.add_(0.1)
            return super().update(images, plan)

    BY_NAME["only_what_it_says_learns_has_moved"](Open)
    with pytest.raises(CheckFailed, match=r"^head\.bias moved"):
        BY_NAME["only_what_it_says_learns_has_moved"](OpenAndReaching)
