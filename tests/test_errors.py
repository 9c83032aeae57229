"""What can go wrong, in words."""

import pytest

from driftlaw.errors import DataError, DriftlawError, UsageError, collected, suggest, unknown


def test_wrong_use_exits_with_2_and_everything_else_with_1():
    assert UsageError("x").exit_code == 2
    assert DataError("x").exit_code == 1
    assert DriftlawError("x").exit_code == 1


def test_wrong_use_is_a_value_error_so_that_python_callers_may_catch_it_as_one():
    assert issubclass(UsageError, ValueError)
    assert not issubclass(DataError, ValueError)


@pytest.mark.parametrize(("typed", "meant"), [("fogg", "fog"), ("FOG", "fog"), ("gausian_noise", "gaussian_noise")])
def test_the_nearest_name_is_suggested(typed, meant):
    assert f"«{meant}»" in suggest(typed, ["frost", "gaussian_noise", "fog"])


def test_nothing_is_suggested_where_nothing_is_near():
    assert suggest("zzz", ["fog", "frost"]) == ""
    assert suggest("fog", []) == ""


def test_an_unknown_name_is_told_with_all_valid_ones():
    error = unknown("method", "lew", ["law", "tent"])
    assert isinstance(error, UsageError)
    assert str(error) == "unknown method «lew»: did you mean «law»? Valid names: law, tent"


def test_collected_problems_stand_on_a_line_each():
    assert str(collected("wrong:", ["one", "two"])).splitlines() == ["wrong:", "  - one", "  - two"]
