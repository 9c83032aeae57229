"""Conformance tests for test-time adaptation methods, to run on your own method.

>>> from driftlaw.testing import check_method
>>> [result.name for result in check_method("source") if not result.passed]
[]

In your own test suite, run one test per check::

    @pytest.mark.parametrize("check", driftlaw.testing.CHECKS)
    def test_my_method_conforms(check):
        check(MyMethod)
"""

from driftlaw.base import find_method
from driftlaw.testing.checks import CHECKS, Check, CheckResult, check_method
from driftlaw.testing.expect import CheckFailed

__all__ = ["CHECKS", "Check", "CheckFailed", "CheckResult", "check_method", "find_method"]
