import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from driftlaw.reports import build_report
from tests.reports.example_records import make_record

VOID = {"meta", "br", "img", "link", "hr", "input"}


class Page(HTMLParser):
    """Collects the tags of a page and asserts that they nest."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.ids = [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.ids += [value for name, value in attributes if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def all_records():
    errors = {"source": 45, "norm": 30, "law": 24}
    return [
        make_record(name, [error] * 15, seed=seed, batches_per_domain=3, path=Path(f"runs/{name}-{seed}.jsonl"))
        for name, error in errors.items()
        for seed in (1, 2)
    ]


@pytest.fixture(scope="module")
def page():
    return build_report(all_records(), "html", command="driftlaw report runs --format html")


def test_page_does_not_depend_on_the_order_of_records(page):
    assert build_report(all_records()[::-1], "html", command="driftlaw report runs --format html") == page


def test_tags_nest_and_ids_are_unique(page):
    parsed = Page(page)
    assert len(parsed.ids) == len(set(parsed.ids))


def test_page_is_self_contained(page):
    addresses = set(re.findall(r"https?://[^\s\"'<)]+", page))
    assert all(address.startswith("http://www.w3.org/") for address in addresses)
    assert not re.findall(r"@import|url\((?!#)", page)
    assert not [tag for tag, _ in Page(page).tags if tag in ("link", "iframe", "img")]
    assert "default-src 'none'" in page


def test_summary_comes_first(page):
    assert "LAW has the lowest mean error: 24.0 ± 0.00 % (2 seeds), 21.0 percentage points below" in page
    assert page.index("LAW has the lowest") < page.index("<table")


def test_known_cells(page):
    assert '<td class="best">24.0</td>' in page
    assert '<td class="second">30.0</td>' in page
    assert "<td>−21.0</td>" in page


def test_tables_and_figures_are_accessible(page):
    parsed = Page(page)
    assert all(attributes.get("scope") in ("col", "row") for tag, attributes in parsed.tags if tag == "th")
    drawings = [attributes for _, attributes in parsed.tags if attributes.get("class") == "drawing"]
    assert len(drawings) == 3
    assert all(drawing["role"] == "img" and len(drawing["aria-label"]) > 40 for drawing in drawings)


def test_page_contains_protocol_settings_records_and_command(page):
    for text in (
        "sha256 55555555",
        "runs/law-2.jsonl",
        "abc1234",
        "driftlaw report runs --format html",
        "432.0 M",
        "8.0 ×",
    ):
        assert text in page


def test_page_has_light_and_dark_theme(page):
    assert "prefers-color-scheme: dark" in page
    assert ':root[data-theme="dark"]' in page


def test_names_are_escaped():
    markup = '"><script>alert(1)</script>{{ 7 * 7 }}'
    record = make_record(
        "law",
        {markup: 10, "fog": 5},
        header={"title": markup, "commit": markup},
        settings={markup: markup},
        layers=[markup, "b"],
        path=Path(markup),
    )
    text = build_report([record, make_record("tent", {markup: 10, "fog": 5})], "html", command=markup)
    assert text.count("<script>") == 1  # the script of the page itself
    assert "{{ 7 * 7 }}" in text
    Page(text)


def test_unfinished_run_is_marked():
    text = build_report([*all_records(), make_record("rmt", finished=False, batches_done=4)], "html")
    assert "unfinished: 4 of 30 batches</small>" in text
    assert "RMT, seed 1 is unfinished" in text


def test_page_of_runs_without_batches():
    assert "No run is finished yet." in build_report([make_record(finished=False, batches_done=0)], "html")


def test_one_section_per_protocol():
    text = build_report([*all_records(), make_record("law", stream={"schedule": "mixed"})], "html")
    assert "Online error under 2 protocols" in text
    assert text.count("<section") == 2
    Page(text)


def test_only_four_heat_maps_are_drawn():
    records = [make_record("law", [10 + index] * 15, settings={"tau": index}) for index in range(6)]
    text = build_report(records, "html")
    assert text.count("Heat map of layer weights") == 4
    assert "not drawn here: LAW tau=4; LAW tau=5." in text
