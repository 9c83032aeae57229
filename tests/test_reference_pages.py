"""The generated part of the manual: settings, costs, corruptions, commands and tables from records."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from driftlaw.corruptions import list_corruptions
from driftlaw.methods import registered_methods

ROOT = Path(__file__).resolve().parent.parent
METHODS = sorted(name for name, kind in registered_methods().items() if kind.__module__.startswith("driftlaw.methods."))


@pytest.fixture(scope="module")
def docs_module():
    """Return a function that imports a module of docs/ by name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "docs")

        def load(name):
            spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module

        yield load


@pytest.fixture(scope="module")
def pages(docs_module):
    return docs_module("reference_pages")


@pytest.fixture(scope="module")
def cost(docs_module):
    return docs_module("cost_page")


@pytest.mark.parametrize("name", METHODS)
def test_method_has_a_page_and_describes_every_setting(pages, name):
    kind = registered_methods()[name]
    fragment, settings = pages.method_fragment(kind), pages.settings_page()
    assert "## Differences from the paper" in fragment
    for setting, field in kind.Config.model_fields.items():
        assert field.description, f"{name}.{setting} has no docstring"
        assert f"`{setting}`" in fragment + settings
    page = (ROOT / "docs" / "methods" / f"{name}.md").read_text(encoding="utf-8")
    assert f"reference/method-{name}.md" in page
    for heading in ("## Formula", "## When to use it", "## When not to use it", "## Use"):
        assert heading in page
    assert name == "source" or "https://arxiv.org/abs/" in page or "https://openreview.net/forum" in page


def test_settings_page_starts_with_the_settings_of_law(pages):
    text = pages.settings_page()
    assert text.index("`tau`") < text.index("`statistics`") < text.index("`precision`")
    assert text.index("`learning_rate`") < text.index("`fisher_every`")


def test_every_corruption_and_command_is_listed(pages):
    assert all(f"`{name}`" in pages.corruptions_page() for name in list_corruptions("all"))
    assert "## driftlaw data get" in pages.commands_page()
    assert "`--checkpoint-seconds`" in pages.commands_page()


def test_pages_of_removed_methods_are_deleted(pages, tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "TABLES", {})
    for slow in ("method_table", "cost_page"):
        monkeypatch.setattr(pages, slow, lambda *_: "")
    folder = tmp_path / "reference"
    pages.write_pages(folder)
    (folder / "method-gone.md").write_text("old")
    pages.write_pages(folder)
    written = {path.name for path in folder.iterdir()}
    assert {f"method-{name}.md" for name in METHODS} < written
    assert "method-gone.md" not in written


@pytest.mark.parametrize("method", ["tent", "cotta", "gtta"])
def test_published_flops_agree_with_the_counted_forward_passes(cost, method):
    passes = registered_methods()[method].forward_cost
    for index, forward in enumerate(cost.forward_gflops().values()):
        assert cost.PUBLISHED[method][index] == pytest.approx(passes * forward, rel=cost.AGREES)


def test_every_difference_from_the_published_flops_is_explained(cost):
    explained = {registered_methods()[name].title for name in cost.REMARKS}
    for index, forward in enumerate(cost.forward_gflops().values()):
        assert {row[0] for row in cost.rows(index, forward) if row[3] != "agrees"} <= explained


def test_tables_from_records_have_a_row_per_method(docs_module):
    tables = docs_module("record_tables")
    recorded = {record.method for record in tables.load("embedded", "embedded-methods")}
    assert recorded == set(METHODS)
    assert sum(line.startswith("| ") for line in tables.embedded_table().splitlines()) == 2 + len(recorded)
    assert set(METHODS) <= set(tables.TITLES)
    for name in recorded:
        assert tables.TITLES[name] in tables.method_table(name)


def test_formula_is_drawn_or_rejected_with_its_text(docs_module):
    pytest.importorskip("sphinx", reason="needs the extra docs")
    renderer = docs_module("mathtext_renderer")
    assert renderer.image(r"\bar w^l").startswith('<img class="formula" src="data:image/svg+xml;base64,')
    with pytest.raises(renderer.ExtensionError, match="unknowncommand"):
        renderer.image(r"\unknowncommand")
