from driftlaw.reports.build import build_document
from driftlaw.reports.document import Cell, Column, Document, Figure, Note, Section, Table
from driftlaw.reports.render_html import render_html
from driftlaw.reports.render_latex import render_latex
from driftlaw.reports.render_markdown import render_markdown
from driftlaw.reports.render_terminal import render_text
from driftlaw.reports.tables import make_tables
from tests.reports.example_records import make_record

TABLE = Table(
    "Fruit",
    (Column("name", "label"), Column("ripe", "flag"), Column("weight")),
    ((Cell("apple", details=("red",)), Cell("yes"), Cell("150.0", " ± 2.00", "best")),),
)
INNER = Section("Details", (Note("In grams.", "caption"), Figure("<svg></svg>", "A drawing", "An apple")))
SECTION = Section("Basket", (TABLE, Note("Bought: today.", "protocol", (("bought", "today"),))), (INNER,), "abc")


def test_walk_visits_blocks_in_reading_order():
    assert list(SECTION.walk()) == [*SECTION.blocks, *INNER.blocks]
    assert SECTION.notes("caption") == ["In grams."]


def test_label_of_a_cell_contains_details_and_warning():
    assert Cell("LAW", details=("tau=1",), warning="unfinished").label == "LAW tau=1 (unfinished)"


def test_renderers_show_a_document_that_is_no_report():
    document = Document("Fruit", (SECTION,), "make fruit")
    assert "| apple red | yes | **150.0 ± 2.00** |" in render_markdown(document)
    assert r"apple red & $\checkmark$ & \textbf{150.0$\pm$2.00} \\" in render_latex(document)
    assert "150.0 ± 2.00" in render_text(document)
    page = render_html(document)
    assert '<td class="lowest best">150.0<small> ± 2.00</small></td>' in page
    assert "<dt>bought</dt><dd>today</dd>" in page
    for text in (render_markdown(document), render_latex(document), page):
        assert "make fruit" in text
        assert "In grams." in text


def test_formats_contain_different_parts():
    tables = make_tables([make_record("source", [45] * 15), make_record("law")])

    def titles(format):
        (section,) = build_document(tables, format).sections
        return [part.title for part in section.subsections]

    assert titles("md") == ["Error by domain", "Cost"]
    assert titles("html") == [
        *("Error by domain", "Error along the stream", "Layer weights", "Cost", "Settings", "Records"),
    ]
    assert titles("brief") == titles("latex") == titles("terminal") == []
