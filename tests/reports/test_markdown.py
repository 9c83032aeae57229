from driftlaw.reports import build_report
from tests.reports.example_records import make_record


def rows(text):
    return [line for line in text.splitlines() if line.startswith("|")]


def test_every_row_has_as_many_cells_as_the_heading():
    text = build_report([make_record("source", [45] * 15), make_record("law")], "md")
    errors = rows(text)[:4]
    assert {line.count("|") for line in errors} == {20}
    assert "| source-free | gaussian | shot |" in errors[0]


def test_best_is_bold_and_second_underlined():
    text = build_report([make_record("source", [45] * 15), make_record("law", [20] * 15)], "md")
    assert "| LAW (1 seed) | yes | **20.0** |" in text
    assert "| Source (1 seed) | yes | <u>45.0</u> |" in text
    assert "| −25.0 |" in text


def test_the_protocol_stands_under_the_table():
    text = build_report([make_record()], "md", command="driftlaw report runs")
    assert text.index("| LAW") < text.index("Protocol: images: cifar10-embedded")
    assert text.endswith("Made from records by `driftlaw report runs`.\n")


def test_names_cannot_break_the_table():
    text = build_report([make_record(header={"title": "a|b <img> *c*\n| d"})], "md")
    assert r"| a\|b \<img\> \*c\* \| d (1 seed) |" in text


def test_an_unfinished_row_says_so():
    text = build_report([make_record("rmt", finished=False, batches_done=4)], "md")
    assert "RMT (unfinished: 4 of 30 batches) | no |" in text
