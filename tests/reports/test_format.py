import pytest

from driftlaw.reports.format import difference_text, milliseconds_text, short_name, units_text, value_text
from tests.reports.example_records import CORRUPTIONS

PAPER = "gaussian shot impulse defocus glass motion zoom snow frost fog bright. contrast elastic pixel. jpeg"


def test_the_fifteen_corruptions_have_the_headings_of_papers():
    assert [short_name(name) for name in CORRUPTIONS] == PAPER.split()


@pytest.mark.parametrize(("value", "text"), [(-0.04, "0.0"), (-0.06, "−0.1"), (3.0, "+3.0"), (None, "–")])
def test_a_difference_has_a_sign_unless_it_is_nothing(value, text):
    assert difference_text(value) == text


def test_what_was_not_measured_is_a_dash():
    assert milliseconds_text(None) == units_text(None) == "–"


def test_settings_are_written_as_in_a_settings_file():
    assert [value_text(value) for value in (1e-3, False, "tensor", [1, 2])] == ["0.001", "false", "tensor", "[1, 2]"]
