import pytest

from driftlaw.errors import UsageError
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
    runs = [make_record(name, [error] * 15, batches_a_domain=6) for name, error in (("source", 45), ("law", 20))]
    text = build_report(runs, "md")
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


def test_in_brief_a_method_is_a_line_of_error_and_cost():
    records = [make_record("source", [45] * 15), *(make_record("law", [20] * 15, seed=seed) for seed in (1, 2))]
    text = build_report(records, "brief", command="driftlaw report runs --format brief")
    assert len(rows(text)) == 4
    assert rows(text)[0] == "| method | source-free | seeds | error, mean | FLOPs an image, a step | ms a step |"
    assert "| LAW | yes | 2 | **20.0 ± 0.00** |" in text
    assert "Protocol: images: cifar10-embedded" in text
    assert text.endswith("Made from records by `driftlaw report runs --format brief`.\n")


def test_in_brief_the_papers_figure_stands_beside_ours_where_asked_for():
    heading, _, row = rows(build_report([make_record("law")], "brief", compare="paper"))
    assert "| error, mean | paper | FLOPs" in heading
    assert row.count("|") == heading.count("|")


def test_in_brief_two_rows_of_a_method_tell_which_has_the_papers_settings():
    paper = {"learning_rate": 1e-3, "tau": 1.0, "consistency_weight": 0.1}
    records = [make_record("law", settings=paper), make_record("law", settings={**paper, "consistency_weight": 0.3})]
    model = {"name": "wrn_28_10", "weights": "wrn_28_10-cifar10", "sha256": "a" * 64}
    for record in records:
        record.header["model"] = model
    text = build_report(records, "brief", compare="paper")
    assert "| LAW with the paper's settings |" in text
    assert "| LAW with consistency\\_weight 0.3 (paper 0.1) |" in text
    assert "LAW consistency\\_weight=0.3" in build_report(records, "brief")


def test_brief_has_no_place_for_more_columns():
    with pytest.raises(UsageError, match="leave out --columns"):
        build_report([make_record("law")], "brief", columns=("worst",))


def test_a_row_says_nothing_of_settings_that_stand_at_their_default():
    plain, other = make_record("law"), make_record("law", [20] * 15)
    other.header["settings"] = {**other.header["settings"], "fisher_every": 10}
    text = build_report([plain, other], "brief")
    assert "| LAW | yes |" in text
    assert r"| LAW fisher\_every=10 | yes |" in text


def test_a_row_in_float32_says_so_beside_one_in_bf16():
    plain, other = make_record("law"), make_record("law", [20] * 15)
    plain.header["execution"], other.header["execution"] = {"precision": "float32"}, {"precision": "bf16"}
    text = build_report([plain, other], "brief")
    assert "| LAW precision=float32 | yes |" in text
    assert "| LAW precision=bf16 | yes |" in text
