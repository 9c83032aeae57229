"""The list of checks, and the function that holds a method against all of them."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from driftlaw.testing import outputs as answers
from driftlaw.testing import side_effects
from driftlaw.testing import state as states
from driftlaw.testing.find_method import Method
from driftlaw.testing.fixtures import CheckFailed, Subject


class Check(Protocol):
    """One promise: called on a method, it returns nothing where it is kept and raises where it is not."""

    __name__: str

    def __call__(self, method: Method, settings: Mapping[str, Any] | None = None) -> None:
        """Raise ``CheckFailed`` with a reason, or whatever the method itself raised."""


@dataclass(frozen=True)
class CheckResult:
    """How one check went; ``reason`` is empty where it passed."""

    name: str
    passed: bool
    reason: str
    seconds: float


def _on_a_method(function: Callable[[Subject], None]) -> Check:
    """Turn a check of a subject into one that anybody can call on a class, a name or a file."""

    @functools.wraps(function)
    def check(method: Method, settings: Mapping[str, Any] | None = None) -> None:
        function(Subject.of(method, settings))

    del check.__wrapped__  # tools would take the inner function's arguments for those of the check
    return check


CHECKS: tuple[Check, ...] = tuple(
    _on_a_method(function)
    for function in (
        answers.it_says_what_it_is,
        answers.answers_have_the_right_shape_and_are_finite,
        side_effects.input_and_the_callers_model_stay_as_they_were,
        answers.modes_around_it_change_nothing,
        states.reset_equals_fresh,
        states.saving_and_loading_changes_nothing,
        side_effects.the_seed_alone_decides,
        side_effects.the_global_random_state_is_not_touched,
        side_effects.only_what_it_says_learns_has_moved,
        side_effects.predict_changes_nothing,
        states.the_state_does_not_grow,
        answers.a_batch_of_one_works_or_is_refused,
        answers.a_model_without_norm_layers_works_or_is_refused,
        states.another_methods_state_is_refused,
        states.other_settings_are_warned_about,
        side_effects.no_stale_gradient_is_left_behind,
        answers.wrong_input_is_refused_and_changes_nothing,
        states.a_deep_copy_goes_its_own_way,
        answers.float64_models_work,
        side_effects.a_run_gives_the_same_record_twice,
    )
)


def check_method(kind_or_name: Method, settings: Mapping[str, Any] | None = None) -> list[CheckResult]:
    """Hold a method against every check and return how each went.

    Args:
        kind_or_name: the class, a name of ``list_methods()``, or the path of a .py file that defines one method.
        settings: the method's settings; defaults where left out.

    Raises:
        UsageError: there is no such method, or the settings do not fit it.
    """
    subject = Subject.of(kind_or_name, settings)
    return [_result(check, subject) for check in CHECKS]


def _result(check: Check, subject: Subject) -> CheckResult:
    start = time.perf_counter()
    try:
        check(subject.kind, subject.config.model_dump())
        reason = ""
    except CheckFailed as failure:
        reason = str(failure)
    except Exception as error:  # a method under check may raise anything; that is a result too
        reason = f"raised {type(error).__name__}: {error}"
    return CheckResult(check.__name__, not reason, reason, time.perf_counter() - start)
