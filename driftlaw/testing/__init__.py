"""The conformance kit: what every method promises, as small checks that anyone may call on a method of their own.

>>> from driftlaw.testing import check_method
>>> [result.name for result in check_method("source") if not result.passed]
[]

In a test of your own, one case a check::

    @pytest.mark.parametrize("check", driftlaw.testing.CHECKS)
    def test_my_method_conforms(check):
        check(MyMethod)
"""

from driftlaw.testing.checks import CHECKS, Check, CheckResult, check_method
from driftlaw.testing.find_method import find_method
from driftlaw.testing.fixtures import CheckFailed

__all__ = ["CHECKS", "Check", "CheckFailed", "CheckResult", "check_method", "find_method"]
