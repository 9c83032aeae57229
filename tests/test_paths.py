"""Where things lie."""

from pathlib import Path

from driftlaw import paths as places


def test_the_argument_comes_before_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("DRIFTLAW_DATA", str(tmp_path / "environment"))
    assert places.data_dir(tmp_path / "argument") == tmp_path / "argument"
    assert places.data_dir() == tmp_path / "environment"


def test_an_empty_variable_counts_as_none(monkeypatch, tmp_path):
    monkeypatch.setenv("DRIFTLAW_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert places.data_dir() == tmp_path / "driftlaw"


def test_the_users_cache_is_the_default(monkeypatch):
    monkeypatch.delenv("DRIFTLAW_DATA")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(places.sys, "platform", "linux")
    assert places.data_dir() == Path.home() / ".cache" / "driftlaw"
    monkeypatch.setattr(places.sys, "platform", "darwin")
    assert places.data_dir() == Path.home() / "Library" / "Caches" / "driftlaw"


def test_a_tilde_is_the_home_folder(monkeypatch):
    assert places.data_dir("~/data") == Path.home() / "data"
    monkeypatch.setenv("DRIFTLAW_DATA", "~/elsewhere")
    assert places.data_dir() == Path.home() / "elsewhere"


def test_asking_makes_no_folder(tmp_path):
    assert not places.data_dir(tmp_path / "none").exists()


def test_assets_and_presets_ship_with_the_package():
    assert list(places.ASSETS.glob("*.webp"))
    assert list(places.PRESETS.glob("*.toml"))
