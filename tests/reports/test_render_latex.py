import re

import pytest

from driftlaw.reports import build_report
from driftlaw.reports.render_latex import escaped
from tests.reports.example_records import make_record


@pytest.fixture
def text():
    records = [
        make_record(name, [error] * 15, seed=seed, batches_a_domain=6)
        for name, error in [("source", 45), ("law", 20)]
        for seed in (1, 2)
    ]
    title = {"title": r"50 % {T}_ent & $\ ~^#", "needs_source": True}
    hostile = make_record("tent", [30] * 15, header=title, batches_a_domain=6)
    return build_report([*records, hostile], "latex", command="driftlaw report runs")


def body(text):
    return text[text.index(r"\toprule") : text.index(r"\bottomrule")].splitlines()


def test_every_row_has_the_columns_that_the_table_declares(text):
    columns = 2 + 15 + 1 + 1
    assert r"\begin{tabular}{lc*{15}{r}cr}" in text
    lines = [line for line in body(text) if line.endswith(r"\\")]
    assert len(lines) == 4
    assert {len(re.findall(r"(?<!\\)&", line)) for line in lines} == {columns - 1}


def test_braces_and_environments_are_balanced(text):
    bare = re.sub(r"\\[{}]", "", "\n".join(line for line in text.splitlines() if not line.startswith("%")))
    depth = 0
    for character in bare:
        depth += {"{": 1, "}": -1}.get(character, 0)
        assert depth >= 0
    assert depth == 0
    assert re.findall(r"\\begin\{(\w+\*?)\}", text) == re.findall(r"\\end\{(\w+\*?)\}", text)[::-1]


def test_dollars_are_paired(text):
    assert len(re.findall(r"(?<!\\)\$", text)) % 2 == 0


def test_rules_are_those_of_booktabs(text):
    assert [text.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule", r"\hline")] == [1, 1, 1, 0]


def test_best_is_bold_and_second_underlined(text):
    law = next(line for line in body(text) if line.startswith("LAW"))
    assert law.count(r"\textbf{") == 16
    assert r"\textbf{20.0$\pm$0.00} & $-$25.0" in law
    assert next(line for line in body(text) if line.startswith("50")).count(r"\underline{") == 16


def test_a_method_that_needs_source_is_crossed(text):
    assert [r"$\times$" in line for line in body(text) if "seed" in line] == [False, True, False]


def test_the_command_and_the_packages_stand_in_comments(text):
    assert text.splitlines()[0].startswith("% needs")
    assert text.splitlines()[1] == "% made from records by: driftlaw report runs"


def test_special_characters_are_escaped():
    assert escaped("a_b & 5 % {x} \\") == r"a\_b \& 5 \% \{x\} \textbackslash{}"
