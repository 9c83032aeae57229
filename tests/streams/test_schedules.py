"""Schedules of domains."""

from typing import get_args

import pytest

from driftlaw.base import Domain
from driftlaw.corruptions import list_corruptions
from driftlaw.streams.schedules import list_domains
from driftlaw.streams.settings import StreamSettings

SCHEDULES = get_args(StreamSettings.model_fields["schedule"].annotation)
BENCHMARK = list_corruptions("benchmark")


def test_continual_has_every_corruption_once_in_order():
    domains = list_domains("continual", BENCHMARK, 5, 1)
    assert [domain.name for domain in domains] == BENCHMARK
    assert {domain.severity for domain in domains} == {5}
    assert {domain.round for domain in domains} == {0}


def test_gradual_has_135_domains_with_rising_and_falling_severity():
    domains = list_domains("gradual", BENCHMARK, 5, 1)
    assert len(domains) == 135
    assert [domain.severity for domain in domains] == [1, 2, 3, 4, 5, 4, 3, 2, 1] * 15
    assert [domain.name for domain in domains[::9]] == BENCHMARK
    assert len([domain for domain in domains if domain.severity == 5]) == 15


def test_recurring_repeats_and_counts_rounds():
    domains = list_domains("recurring", ["fog", "snow"], 3, 3)
    assert [(domain.name, domain.round) for domain in domains] == [
        ("fog", 0),
        ("snow", 0),
        ("fog", 1),
        ("snow", 1),
        ("fog", 2),
        ("snow", 2),
    ]
    assert list_domains("recurring", ["fog", "snow"], 3, 1) == list_domains("continual", ["fog", "snow"], 3, 1)


@pytest.mark.parametrize("schedule", sorted(SCHEDULES))
def test_clean_images_have_severity_0_in_every_schedule(schedule):
    domains = list_domains(schedule, ["clean", "fog"], 4, 1)
    assert {domain.severity for domain in domains if domain.name == "clean"} == {0}
    assert Domain("fog", 4) in domains


def test_reset_mixed_and_single_have_the_domains_of_continual():
    for schedule in ("reset", "mixed", "single"):
        assert list_domains(schedule, ["fog", "snow"], 2, 1) == list_domains("continual", ["fog", "snow"], 2, 1)
