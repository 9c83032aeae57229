"""The checker of the fuzz tests: what it counts as a failure."""

import time

import pytest
import torch

pytest.importorskip("hypothesis")

from benchmarks.reliability.fuzz import fuzz_chunk, fuzz_targets
from benchmarks.reliability.fuzzing import TARGETS, Checker
from benchmarks.reliability.fuzzing.checker import FuzzFailureError
from benchmarks.reliability.fuzzing.networks import adapter_of
from driftlaw.errors import DataError


def fail(error):
    raise error


def test_results_and_errors_of_driftlaw_are_allowed():
    checker = Checker(raises=True)
    assert checker.call(len, "abc") == 3
    assert checker.call(fail, DataError("x")) is None
    assert checker.call(fail, OSError("x"), allowed=(OSError,)) is None
    assert (checker.calls, checker.refused, checker.failures) == (3, 2, {})


def test_other_exceptions_are_counted_once_per_place():
    checker = Checker()
    for error in (ValueError("a"), ValueError("b"), KeyError("c"), SystemExit(3)):
        checker.call(fail, error)
    assert [failure["count"] for failure in checker.failures.values()] == [2, 1, 1]
    with pytest.raises(FuzzFailureError, match="ValueError in the caller: a"):
        Checker(raises=True).call(fail, ValueError("a"))


def test_a_call_without_end_is_stopped():
    checker = Checker(seconds=0.05)
    checker.call(time.sleep, 30)
    assert "no result after 0.05 s" in next(iter(checker.failures))


def test_a_refused_call_that_changes_the_state_is_found():
    adapter = adapter_of("norm")

    def change_and_refuse():
        with torch.no_grad():
            adapter.model[0].bias += 1
        raise DataError("x")

    checker = Checker()
    checker.call(change_and_refuse, adapter=adapter)
    adapter_of.cache_clear()
    assert "a refused call changed the state" in next(iter(checker.failures))


def test_chunks_of_a_target_are_repeatable():
    one, other = (fuzz_chunk("tuning_files", 10, 3) for _ in range(2))
    assert [one[key] for key in ("calls", "refused")] == [other[key] for key in ("calls", "refused")]
    assert one["failures"].keys() == other["failures"].keys()


def test_targets_are_called_in_turn_in_another_process():
    names, progress = ["tuning_files", "presets"], []
    assert set(names) <= set(TARGETS)
    rows = fuzz_targets(names, 30, 0, 600.0, 10, progress.append)
    assert [row["target"] for row in rows] == names
    assert sum(row["calls"] for row in rows) >= 30
    assert all(row["calls"] for row in rows)
    assert len(progress) == 2
