"""Errors: exit codes, suggestions and combined messages."""

import pytest

from driftlaw.errors import DataError, DriftlawError, UsageError, combined_error, suggest, unknown_name


def test_usage_errors_exit_with_2_and_all_others_with_1():
    assert UsageError("x").exit_code == 2
    assert DataError("x").exit_code == 1
    assert DriftlawError("x").exit_code == 1


def test_usage_error_is_a_value_error():
    assert issubclass(UsageError, ValueError)
    assert not issubclass(DataError, ValueError)


@pytest.mark.parametrize(("typed", "meant"), [("fogg", "fog"), ("FOG", "fog"), ("gausian_noise", "gaussian_noise")])
def test_the_nearest_name_is_suggested(typed, meant):
    assert f"'{meant}'" in suggest(typed, ["frost", "gaussian_noise", "fog"])


def test_nothing_is_suggested_if_no_name_is_close():
    assert suggest("zzz", ["fog", "frost"]) == ""
    assert suggest("fog", []) == ""


def test_unknown_name_error_lists_all_valid_names():
    error = unknown_name("method", "lew", ["law", "tent"])
    assert isinstance(error, UsageError)
    assert str(error) == "Unknown method 'lew'. Did you mean 'law'? Valid names: law, tent."


def test_combined_error_has_one_line_per_problem():
    assert str(combined_error("wrong:", ["one", "two"])).splitlines() == ["wrong:", "  - one", "  - two"]
