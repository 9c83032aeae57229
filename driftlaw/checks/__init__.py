"""The conformance kit: what every method promises, as small checks that anyone may call on a method of their own.

>>> from driftlaw.checks import check_method
>>> [result.name for result in check_method("source") if not result.passed]
[]

In a test of your own, one case a check::

    @pytest.mark.parametrize("check", driftlaw.checks.CHECKS)
    def test_my_method_conforms(check):
        check(MyMethod)
"""

from driftlaw.checks.finding import find_method
from driftlaw.checks.kit import CHECKS, Check, CheckResult, check_method
from driftlaw.checks.subject import CheckFailed

__all__ = ["CHECKS", "Check", "CheckFailed", "CheckResult", "check_method", "find_method"]
