"""Calls with unusual arguments and damaged files, chosen by hypothesis: they return or raise an error of driftlaw.

``python -m benchmarks reliability fuzz`` makes many more of them.
"""

import pytest

hypothesis = pytest.importorskip("hypothesis")

from hypothesis import strategies as st  # noqa: E402

from benchmarks.reliability.fuzz import empty  # noqa: E402
from benchmarks.reliability.fuzzing import TARGETS, Checker  # noqa: E402

EXAMPLES = 30
SETTINGS = hypothesis.settings(
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[hypothesis.Phase.generate],
    suppress_health_check=list(hypothesis.HealthCheck),
)


@pytest.mark.parametrize("name", TARGETS)
def test_calls_return_or_raise_an_error_of_driftlaw(name, tmp_path, monkeypatch):
    monkeypatch.setenv("DRIFTLAW_QUIET", "1")
    checker = Checker()

    @SETTINGS
    @hypothesis.given(st.data())
    def run_target(data):
        empty(tmp_path)
        TARGETS[name](data.draw, checker, tmp_path)

    run_target()
    assert checker.failures == {}
    assert checker.calls >= EXAMPLES
    assert checker.refused > 0
