"""The list of conformance checks, and ``check_method``, which runs them on one method."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from driftlaw.errors import unknown_name
from driftlaw.testing import outputs, side_effects, state
from driftlaw.testing.find_method import Method
from driftlaw.testing.fixtures import CheckFailed, MethodUnderTest


class Check(Protocol):
    """A conformance check: a function that raises if a method does not meet one requirement.

    Its ``__name__`` identifies the check, and the first line of its docstring describes the requirement.
    """

    __name__: str

    def __call__(self, method: Method, settings: Mapping[str, Any] | None = None) -> None:
        """Raise ``CheckFailed`` with a reason, or pass on the exception that the method raised."""


@dataclass(frozen=True)
class CheckResult:
    """Result of one check on one method.

    Attributes:
        name: name of the check.
        passed: whether the method meets the requirement.
        reason: why it does not; empty if it passed.
        seconds: how long the check took.
    """

    name: str
    passed: bool
    reason: str
    seconds: float


def _as_check(function: Callable[[MethodUnderTest], None]) -> Check:
    @functools.wraps(function)
    def check(method: Method, settings: Mapping[str, Any] | None = None) -> None:
        function(MethodUnderTest.create(method, settings))

    del check.__wrapped__  # inspect.signature would show the inner function's arguments
    return check


CHECKS: tuple[Check, ...] = tuple(
    _as_check(function)
    for function in (
        outputs.declares_metadata,
        outputs.logits_and_diagnostics_are_valid,
        outputs.predicts_before_update,
        side_effects.input_and_model_are_unchanged,
        outputs.independent_of_grad_and_train_mode,
        state.reset_restores_initial_state,
        state.save_and_load_continue_exactly,
        side_effects.seed_determines_result,
        side_effects.global_rng_is_untouched,
        side_effects.updates_only_declared_parameters,
        side_effects.predict_has_no_side_effects,
        state.state_size_is_constant,
        outputs.single_image_works_or_is_rejected,
        outputs.model_without_norm_layers_works_or_is_rejected,
        state.rejects_state_of_other_method,
        state.warns_about_different_settings,
        side_effects.leaves_no_gradients,
        outputs.rejects_invalid_input,
        state.deepcopy_is_independent,
        outputs.supports_float64,
        side_effects.run_is_reproducible,
    )
)

OLD_NAMES = {
    "it_says_what_it_is": "declares_metadata",
    "answers_have_the_right_shape_and_are_finite": "logits_and_diagnostics_are_valid",
    "input_and_the_callers_model_stay_as_they_were": "input_and_model_are_unchanged",
    "modes_around_it_change_nothing": "independent_of_grad_and_train_mode",
    "reset_equals_fresh": "reset_restores_initial_state",
    "saving_and_loading_changes_nothing": "save_and_load_continue_exactly",
    "the_seed_alone_decides": "seed_determines_result",
    "the_global_random_state_is_not_touched": "global_rng_is_untouched",
    "only_what_it_says_learns_has_moved": "updates_only_declared_parameters",
    "predict_changes_nothing": "predict_has_no_side_effects",
    "the_state_does_not_grow": "state_size_is_constant",
    "a_batch_of_one_works_or_is_refused": "single_image_works_or_is_rejected",
    "a_model_without_norm_layers_works_or_is_refused": "model_without_norm_layers_works_or_is_rejected",
    "another_methods_state_is_refused": "rejects_state_of_other_method",
    "other_settings_are_warned_about": "warns_about_different_settings",
    "no_stale_gradient_is_left_behind": "leaves_no_gradients",
    "wrong_input_is_refused_and_changes_nothing": "rejects_invalid_input",
    "a_deep_copy_goes_its_own_way": "deepcopy_is_independent",
    "float64_models_work": "supports_float64",
    "a_run_gives_the_same_record_twice": "run_is_reproducible",
}
"""Names of checks before version 0.2, still accepted by ``check_method(only=…)`` and ``driftlaw check --only``."""


def check_method(
    method: Method, settings: Mapping[str, Any] | None = None, *, only: Collection[str] = ()
) -> list[CheckResult]:
    """Run the conformance checks on a method and return one result per check.

    Args:
        method: the class, a name of ``list_methods()``, or the path of a .py file that defines one method.
        settings: the method's settings; defaults for those not given.
        only: names of the checks to run; all if empty.

    Raises:
        UsageError: the method or a check does not exist, or the settings are invalid.

    >>> check_method("tent", {"learning_rate": 1e-4}, only=["seed_determines_result"])[0].passed
    True
    """
    names = {OLD_NAMES.get(name, name) for name in only}
    valid = [check.__name__ for check in CHECKS]
    for name in sorted(names.difference(valid)):
        raise unknown_name("check", name, valid)
    under_test = MethodUnderTest.create(method, settings)
    return [_run(check, under_test) for check in CHECKS if not names or check.__name__ in names]


def _run(check: Check, under_test: MethodUnderTest) -> CheckResult:
    start = time.perf_counter()
    try:
        check(under_test.kind, under_test.config.model_dump())
        reason = ""
    except CheckFailed as failure:
        reason = str(failure)
    except Exception as error:  # user code may raise anything; that is a failed check, not a failed test run
        reason = f"Raised {type(error).__name__}: {error}"
    return CheckResult(check.__name__, not reason, reason, time.perf_counter() - start)
