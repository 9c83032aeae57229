"""Errors: exit codes, suggestions and combined messages."""

import pickle

import pytest

from driftlaw.errors import (
    DataError,
    DriftlawError,
    DriftlawWarning,
    UsageError,
    combined_error,
    suggest,
    unknown_name,
    warn_user,
)


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
    assert suggest("tau", ["capture", "statistics"]) == suggest("device", ["detach_target"]) == ""  # not close


def test_unknown_name_error_lists_all_valid_names():
    error = unknown_name("method", "lew", ["law", "tent"])
    assert isinstance(error, UsageError)
    assert str(error) == "Unknown method 'lew'. Did you mean 'law'? Valid names: law, tent."


def test_combined_error_has_one_line_per_problem():
    assert str(combined_error("wrong:", ["one", "two"])).splitlines() == ["wrong:", "  - one", "  - two"]


@pytest.mark.parametrize("kind", [DriftlawError, UsageError, DataError])
def test_messages_cannot_control_a_terminal(kind):
    error = kind("file \x1b[2J\x9b\r\u202e\udc80 of\n\tdriftlaw…")
    assert str(error) == "file \\u001b[2J\\u009b\\u000d\\u202e\\udc80 of\n\tdriftlaw…"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_warnings_cannot_control_a_terminal():
    with pytest.warns(DriftlawWarning, match=r"\\u001b\[2J"):
        warn_user("\x1b[2J")
