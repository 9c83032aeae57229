import base64
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PIL import Image

from driftlaw.reports import build_report, make_tables
from tests.reports.example_records import add_diagnostics, make_record, without_labels

VOID = {"meta", "br", "img", "link", "hr", "input"}


class Page(HTMLParser):
    """Collects the tags and texts of a page and asserts that tags nest."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.ids = [], [], []
        self.texts: dict[str, list[str]] = {}  # by tag
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

    def handle_data(self, data):
        if self.open and data.strip():
            self.texts.setdefault(self.open[-1], []).append(data.strip())

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
    assert not [tag for tag, _ in Page(page).tags if tag in ("link", "iframe")]
    assert "default-src 'none'" in page


def test_summary_comes_first(page):
    assert "LAW has the lowest mean error: 24.0 ± 0.00\u00a0% (2 seeds), 21.0 percentage points below" in page
    assert page.index("LAW has the lowest") < page.index("<table")


def test_lowest_value_of_a_column_is_shaded(page):
    assert page.count('<td class="lowest best">24.0</td>') == 15
    assert '<td class="group lowest best">24.0<small> ± 0.00</small></td>' in page
    assert "<td>30.0</td>" in page
    assert "<td>−21.0</td>" in page
    assert "underline" not in page


def test_lowest_value_without_significance_is_shaded_and_not_bold():
    errors = {"norm": [10, 30] * 7 + [20], "law": [19] * 15}
    text = build_report([make_record(name, values) for name, values in errors.items()], "html")
    assert '<td class="group lowest">19.0</td>' in text
    assert "lowest best" not in text


def test_title_in_words_and_dates(page):
    parsed = Page(page)
    assert parsed.texts["h1"] == ["CIFAR-10-C (embedded images), continual: source, BN-1 and LAW"]
    assert "Run date: 15 November 2026" in parsed.texts["p"]


def test_several_dates():
    later = make_record("norm", header={"timing": {"started": "2026-12-02T23:59:00+00:00"}})
    text = build_report([make_record("law"), later, make_record("tent", header={"timing": {}})], "html")
    assert "Run date: 15 November 2026 to 2 December 2026" in text
    assert "Run date" not in build_report([make_record("tent", header={"timing": {}})], "html")


@pytest.mark.parametrize(
    ("streams", "title"),
    [
        ([{}, {"schedule": "mixed"}], "CIFAR-10-C (embedded images), 2 protocols: LAW"),
        (
            [{}, {"dataset": {"name": "cifar10"}}],
            "CIFAR-10-C and CIFAR-10-C (embedded images), continual, 2 protocols: LAW",
        ),
        ([{"dataset": {"name": "cifar10"}, "corruptions": ["clean"]}], "cifar10, continual: LAW"),
        ([{"dataset": {"name": "folder:/data/dash cam/"}}], "dash cam, continual: LAW"),
    ],
)
def test_titles_of_other_streams(streams, title):
    text = build_report([make_record("law", stream=stream) for stream in streams], "html")
    assert Page(text).texts["h1"] == [title]


def test_title_counts_many_methods():
    text = build_report([make_record(f"method{number}") for number in range(9)], "html")
    assert Page(text).texts["h1"] == ["CIFAR-10-C (embedded images), continual: 9 methods"]


def test_rows_lines_and_figures_of_a_method_can_be_hidden_together(page):
    tags = Page(page).tags
    for number in ("0", "1", "2"):
        kinds = [tag for tag, attributes in tags if attributes.get("data-row") == number]
        assert {"tr", "g"} <= set(kinds)
    heat_map = [attributes for tag, attributes in tags if tag == "figure" and "data-row" in attributes]
    assert [attributes["data-row"] for attributes in heat_map] == ["2"]  # of LAW
    bar = next(attributes for _, attributes in tags if attributes.get("class") == "methods")
    assert bar["role"] == "group"
    assert "hidden" in bar  # shown by the script


def test_charts_contain_values_for_the_pointer(page):
    charts = [json.loads(attributes["data-hover"]) for _, attributes in Page(page).tags if "data-hover" in attributes]
    assert [line["label"] for line in charts[0]["lines"]] == ["Source", "BN-1", "LAW"]


def test_tables_and_figures_have_a_scroll_hint(page):
    tags = Page(page).tags
    wide = [attributes for _, attributes in tags if attributes.get("class") in ("scroll", "drawing")]
    assert len([attributes for _, attributes in tags if attributes.get("class") == "hint"]) == len(wide) > 5
    assert "@media (max-width: 48rem) { .hint { display: block; } }" in page  # without the script


def test_sample_images_are_embedded():
    file = io.BytesIO()
    Image.new("RGB", (4, 4), (200, 0, 0)).save(file, "PNG")
    (table,) = make_tables([make_record("law")])
    text = build_report(
        [table], "html", samples={table.protocol.key: {"clean": file.getvalue(), "gaussian_noise": b"x"}}
    )
    parsed = Page(text)
    sources = [attributes["src"] for tag, attributes in parsed.tags if tag == "img"]
    assert base64.b64decode(sources[0].removeprefix("data:image/png;base64,")) == file.getvalue()
    assert parsed.texts["li"] == ["clean", "gaussian"]
    assert "img-src data:" in text


def test_busy_machine_is_noted():
    quiet, busy, shared = make_record("source"), make_record("norm"), make_record("law")
    quiet.closing["timing"]["load_average"] = {"start": 0.4, "end": 2.9, "cpus": 2}
    busy.closing["timing"]["load_average"] = {"start": 2.0, "end": 5.23, "cpus": 2}
    shared.closing["timing"]["shared_gpu"] = True
    for format in ("html", "terminal"):
        text = " ".join(build_report([quiet, busy, shared], format).split())
        assert (
            "The machine was busy during runs of BN-1 (load average up to 5.2): times of these runs may be too long."
            in text
        )
        assert "Other processes used the GPU during runs of LAW: times of these runs are left out." in text
    assert "busy" not in build_report([quiet], "html")


def test_diagnostics_are_drawn():
    text = build_report([add_diagnostics(make_record(name)) for name in ("source", "law")], "html")
    parsed = Page(text)
    assert "Diagnostics without labels" in parsed.texts["h3"]
    assert parsed.texts["summary"] == ["Class shares", "Distance per layer"]
    assert text.count("Line chart along the stream") == 5


def test_many_notes_and_records_are_folded(page):
    notes = [make_record("law", seed=seed, header={"commit": f"{seed}"}) for seed in range(1, 12)]
    parsed = Page(build_report(notes, "html"))
    assert "Records" in parsed.texts["summary"]
    assert "Records" in Page(page).texts["h3"]
    open_notes = [attributes for tag, attributes in parsed.tags if tag == "details" and "open" in attributes]
    assert [attributes["class"] for attributes in open_notes] == ["notes"]  # one note


@pytest.mark.parametrize("format", ["html", "md", "latex", "terminal"])
def test_runs_without_labels_have_no_errors(format):
    runs = [without_labels(add_diagnostics(make_record(name, {"frames": 20.0}))) for name in ("source", "law")]
    text = build_report(runs, format)
    assert "nan" not in text.lower()
    assert ("--" if format == "latex" else "–") in text
    if format != "latex":
        assert "no labels" in text
    if format == "html":
        assert text.count("Line chart along the stream") == 5
        assert "Error along the stream" not in text
        Page(text)


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
    assert "2 protocols" in Page(text).texts["h1"][0]
    assert text.count("<section") == 2
    Page(text)


def test_only_four_heat_maps_are_drawn():
    records = [make_record("law", [10 + index] * 15, settings={"tau": index}) for index in range(6)]
    text = build_report(records, "html")
    assert text.count("Heat map of layer weights") == 4
    assert "not drawn here: LAW tau=4; LAW tau=5." in text
