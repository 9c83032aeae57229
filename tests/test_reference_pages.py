"""The manual's reference pages, written from the code: nothing of a method may be left untold."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from driftlaw.adapters import registered_methods
from driftlaw.corruptions import list_corruptions

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def pages():
    spec = importlib.util.spec_from_file_location("reference_pages", ROOT / "docs" / "reference_pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", sorted(registered_methods()))
def test_a_methods_page_tells_where_it_departs_and_describes_every_setting(pages, name):
    kind = registered_methods()[name]
    page = pages.method_page(kind)
    assert "**Departs from the paper:**" in page
    for setting, field in kind.Config.model_fields.items():
        assert field.description, f"{name}.{setting} has no docstring"
        assert f"`{setting}`" in page


def test_every_corruption_and_command_has_its_place(pages):
    assert all(f"`{name}`" in pages.corruptions_page() for name in list_corruptions("all"))
    assert "## driftlaw data get" in pages.commands_page()
    assert "`--checkpoint-seconds`" in pages.commands_page()


def test_pages_of_things_that_are_gone_go_too(pages, tmp_path):
    folder = tmp_path / "reference"
    pages.write_pages(folder)
    (folder / "method-gone.md").write_text("old")
    pages.write_pages(folder)
    assert {f"method-{name}.md" for name in registered_methods()} < {path.name for path in folder.iterdir()}
    assert not (folder / "method-gone.md").exists()
