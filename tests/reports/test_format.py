import pytest

from driftlaw.reports.format import difference_text, milliseconds_text, passes_text, short_name, value_text
from tests.reports.example_records import CORRUPTIONS

PAPER = "gaussian shot impulse defocus glass motion zoom snow frost fog bright. contrast elastic pixel. jpeg"


def test_short_names_are_those_of_papers():
    assert [short_name(name) for name in CORRUPTIONS] == PAPER.split()


@pytest.mark.parametrize(("value", "text"), [(-0.04, "0.0"), (-0.06, "−0.1"), (3.0, "+3.0"), (None, "–")])
def test_difference_has_a_sign_unless_it_rounds_to_zero(value, text):
    assert difference_text(value) == text


def test_missing_values_are_dashes():
    assert milliseconds_text(None) == passes_text(None) == "–"


def test_settings_are_written_as_in_a_settings_file():
    assert [value_text(value) for value in (1e-3, False, "tensor", [1, 2])] == ["0.001", "false", "tensor", "[1, 2]"]
