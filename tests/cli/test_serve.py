"""``driftlaw serve``: errors before the server starts."""

import sys

import pytest

from driftlaw.cli.serve import serve
from driftlaw.errors import UsageError


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(UsageError, match=r"pip install \"driftlaw\[serve\]\""):
        serve()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"host": "0.0.0.0"}, "reachable from other machines"),
        ({"host": "example.org"}, "reachable from other machines"),
        ({"set_": ["server.batch_sizes=3"]}, "Did you mean 'batch_size'"),
        ({"set_": ["server.separate_adapters=true"]}, "needs tenants"),
        ({"set_": ["server.tenants=['../a']"]}, "tenants"),
        ({"method": "tent,law"}, "several methods"),
        ({"network": "nowhere"}, "nowhere"),
    ],
    ids=lambda value: None,
)
def test_wrong_options_are_errors(options, message):
    pytest.importorskip("fastapi", reason="needs the extra 'serve'")
    pytest.importorskip("uvicorn", reason="needs the extra 'serve'")
    with pytest.raises(UsageError, match=message):
        serve(**options)
