"""The list of conformance checks, and ``check_method``, which runs them on one method."""

import functools
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import driftlaw.methods  # noqa: F401  (registers the methods, so that they are found by name)
from driftlaw.base.find_method import Method
from driftlaw.errors import unknown_name
from driftlaw.testing import outputs, side_effects, state
from driftlaw.testing.expect import CheckFailed
from driftlaw.testing.fixtures import MethodUnderTest


class Check(Protocol):
    """A conformance check: a function that raises if a method does not meet one requirement.

    Its ``__name__`` identifies the check, and the first line of its docstring describes the requirement.
    """

    __name__: str

    def __call__(self, method: Method, settings: Mapping[str, Any] | None = None, *, dense: bool = False) -> None:
        """Raise ``CheckFailed`` with a reason, or pass on the exception that the method raised.

        With ``dense`` the model returns logits per pixel.
        """


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
    def check(method: Method, settings: Mapping[str, Any] | None = None, *, dense: bool = False) -> None:
        function(MethodUnderTest.create(method, settings, dense=dense))

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
    valid = [check.__name__ for check in CHECKS]
    for name in sorted(set(only).difference(valid)):
        raise unknown_name("check", name, valid)
    under_test = MethodUnderTest.create(method, settings)
    results = []
    for check in [check for check in CHECKS if not only or check.__name__ in only]:
        start, reason = time.perf_counter(), ""
        try:
            check(under_test.kind, under_test.config.model_dump())
        except CheckFailed as failure:
            reason = str(failure)
        except Exception as error:  # user code may raise anything; that is a failed check, not a failed test run
            reason = f"Raised {type(error).__name__}: {error}"
        results.append(CheckResult(check.__name__, not reason, reason, time.perf_counter() - start))
    return results
