"""The manual's reference pages, written from the code: nothing of a method may be left untold."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from driftlaw.corruptions import list_corruptions
from driftlaw.methods import registered_methods

ROOT = Path(__file__).resolve().parent.parent


def docs_module(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pages():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "docs")  # where its pages find each other
        return docs_module("reference_pages")


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


def test_a_forward_pass_costs_what_the_paper_prints_for_each_network():
    cost = docs_module("cost_page")
    for place, forward in enumerate(cost.forward_gflops().values()):
        assert cost.PUBLISHED["tent"][place] == pytest.approx(forward, rel=cost.AGREES)


@pytest.mark.parametrize("method", ["tent", "cotta", "gtta"])
def test_the_papers_figures_of_a_step_agree_where_they_can_be_counted(method):
    cost = docs_module("cost_page")
    for place, forward in enumerate(cost.forward_gflops().values()):
        passes = registered_methods()[method].forward_cost
        assert cost.PUBLISHED[method][place] == pytest.approx(passes * forward, rel=cost.AGREES)


def test_every_figure_that_parts_from_the_papers_is_explained():
    cost = docs_module("cost_page")
    for place, forward in enumerate(cost.forward_gflops().values()):
        parting = {row[0] for row in cost._rows(place, forward) if row[3] != "agrees"}
        explained = {registered_methods()[name].title for name in cost.REMARKS}
        assert parting <= explained
