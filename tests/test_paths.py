"""The data directory and the files in the package."""

from pathlib import Path

import pytest

from driftlaw import paths
from driftlaw.errors import UsageError


def test_argument_takes_precedence_over_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("DRIFTLAW_DATA", str(tmp_path / "environment"))
    assert paths.data_dir(tmp_path / "argument") == tmp_path / "argument"
    assert paths.data_dir() == tmp_path / "environment"


def test_empty_environment_variable_is_ignored(monkeypatch, tmp_path):
    monkeypatch.setenv("DRIFTLAW_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert paths.data_dir() == tmp_path / "driftlaw"


def test_user_cache_is_the_default(monkeypatch):
    monkeypatch.delenv("DRIFTLAW_DATA")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(paths.sys, "platform", "linux")
    assert paths.data_dir() == Path.home() / ".cache" / "driftlaw"
    monkeypatch.setattr(paths.sys, "platform", "darwin")
    assert paths.data_dir() == Path.home() / "Library" / "Caches" / "driftlaw"


def test_what_is_no_path_is_refused():
    with pytest.raises(UsageError, match="type list"):
        paths.data_dir([None])


def test_tilde_is_expanded(monkeypatch):
    assert paths.data_dir("~/data") == Path.home() / "data"
    monkeypatch.setenv("DRIFTLAW_DATA", "~/elsewhere")
    assert paths.data_dir() == Path.home() / "elsewhere"


def test_data_dir_is_not_created(tmp_path):
    assert not paths.data_dir(tmp_path / "none").exists()


def test_package_contains_assets_and_presets():
    assert list(paths.ASSETS.glob("*.webp"))
    assert list(paths.PRESETS.glob("*.toml"))
