"""What each experiment of RESULTS.md shows beside its tables: the claims it bears on and the figures drawn from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from driftlaw.records import RunRecord
from driftlaw.reports.document import Figure
from driftlaw.reports.figures import draw_error_by_round
from driftlaw.reports.published import Comparison
from driftlaw.reports.result_table import ResultTable
from tools.results import claims as findings
from tools.results import paper_figures
from tools.results.claims import Finding
from tools.results.layer_profiles import LAYER_SHARPNESS, LAYER_WEIGHTS, layer_profiles

Judge = Callable[[Sequence[Comparison]], list[Finding]]
Draw = Callable[[Sequence[Comparison]], list[tuple[str, Figure | None]]]


def _nothing_found(comparisons: Sequence[Comparison]) -> list[Finding]:
    return []


def _nothing_drawn(comparisons: Sequence[Comparison]) -> list[tuple[str, Figure | None]]:
    return []


@dataclass(frozen=True)
class Chapter:
    """A section of RESULTS.md.

    Attributes:
        name: of the experiment, as ``driftlaw reproduce`` has it, or of a folder.
        title: its heading.
        folders: of ``results/`` that its records lie in.
        instead: the experiment whose records do as well where there are none of its own.
        tables: of the paper that its figures are looked for in first.
        judge: what the paper claims of it.
        draw: its figures, each with what tells it from the others of the chapter.
        tabled: whether its runs make tables; those of the figures about layers do not.
        setting: what it varies, by which its rows are told in order.
    """

    name: str
    title: str
    folders: tuple[str, ...] = ()
    instead: str = ""
    tables: tuple[int, ...] = ()
    judge: Judge = _nothing_found
    draw: Draw = _nothing_drawn
    tabled: bool = True
    setting: str = ""


def _each(find: Callable[[ResultTable], list[Finding]]) -> Judge:
    return lambda comparisons: [found for item in comparisons for found in find(item.table)]


def _together(*judges: Judge) -> Judge:
    return lambda comparisons: [found for judge in judges for found in judge(comparisons)]


def _agreement(comparisons: Sequence[Comparison]) -> list[Finding]:
    return [found for item in comparisons for found in findings.find_agreement(item)]


def _gained(comparisons: Sequence[Comparison]) -> list[Finding]:
    return [found for item in comparisons for found in findings.find_gain(item)]


def _tuned(comparisons: Sequence[Comparison]) -> list[Finding]:
    return [found for item in comparisons for found in findings.find_tuned(item)]


def _drawn_each(draw: Callable[[ResultTable], Figure | None]) -> Draw:
    def draw_each(comparisons: Sequence[Comparison]) -> list[tuple[str, Figure | None]]:
        drawn = [(item.table, picture) for item in comparisons if (picture := draw(item.table)) is not None]
        shorts = [_short(table) for table, _ in drawn]
        return [
            (short if shorts.count(short) == 1 else f"{short}-{table.protocol.key[:8]}", picture)
            for short, (table, picture) in zip(shorts, drawn, strict=True)
        ]

    return draw_each


def _short(table: ResultTable) -> str:
    header = table.rows[0].first.header
    return f"{header['stream']['dataset']['name']}-{header['model']['name']}".replace(":", "-")


def _sweep(
    number: int, title: str, setting: str, name: str, *finds: Callable[[ResultTable, str, str], list[Finding]]
) -> Chapter:
    """Return the chapter of a table of the paper whose rows are values of one setting, by its ``name`` in the paper."""

    def judging(find: Callable[[ResultTable, str, str], list[Finding]]) -> Judge:
        return _each(lambda table: find(table, setting, name))

    return Chapter(
        f"table{number}",
        f"Table {number}: {title}",
        tables=(number,),
        judge=_together(*map(judging, finds)),
        draw=lambda comparisons: [("", paper_figures.draw_sweep(comparisons, setting, name))],
        setting=setting,
    )


def _records(comparisons: Iterable[Comparison]) -> list[RunRecord]:
    return [record for item in comparisons for row in item.table.rows for record in row.records if record.finished]


def _scaled(comparisons: Sequence[Comparison]) -> list[tuple[str, Figure | None]]:
    profiles = layer_profiles(_records(comparisons), LAYER_WEIGHTS)
    return [("", paper_figures.draw_weights_along_network(profiles))]


def _unscaled(comparisons: Sequence[Comparison]) -> list[tuple[str, Figure | None]]:
    profiles = layer_profiles(_records(comparisons), LAYER_SHARPNESS)
    return [("", paper_figures.draw_source_against_target(profiles))]


def _diagonal(comparisons: Sequence[Comparison]) -> list[tuple[str, Figure | None]]:
    profiles = layer_profiles(_records(comparisons), LAYER_SHARPNESS)
    return [("", paper_figures.draw_fisher_diagonal(profiles))]


CHAPTERS = (
    Chapter(
        "table1",
        "Table 1: continual adaptation, severity 5",
        tables=(1,),
        judge=_together(_agreement, _gained, _tuned, _each(findings.find_lowest_source_free)),
    ),
    Chapter("table2", "Table 2: gradual adaptation", tables=(2,), judge=_agreement),
    Chapter(
        "table3",
        "Table 3: LAW beside AutoRGN",
        tables=(3,),
        judge=_each(lambda table: findings.find_order(table, ["law", "autorgn", "tent"])),
    ),
    _sweep(4, "the weight λ of the consistency loss", "consistency_weight", "λ", findings.find_minimum),
    _sweep(5, "the exponent τ of the scaler", "tau", "τ", findings.find_minimum),
    Chapter("table6", "Table 6: other networks, CIFAR-10-C", tables=(6,), judge=_agreement),
    Chapter("table7", "Table 7: other networks, CIFAR-100-C", tables=(7,), judge=_agreement),
    Chapter("table8", "Table 8: other networks, ImageNet-C", tables=(8,), judge=_agreement),
    _sweep(9, "Fisher information that fades at rate γ", "fisher_decay", "γ", findings.find_best_end),
    _sweep(10, "τ from 0 on", "tau", "τ", findings.find_minimum, findings.find_divergence),
    Chapter(
        "fig1a",
        "Figure 1a: error against the tuned part",
        judge=_each(findings.find_better_part),
        draw=_drawn_each(paper_figures.draw_tuned_part),
    ),
    Chapter(
        "fig1b",
        "Figure 1b: error against FLOPs",
        instead="table1",
        judge=_each(findings.find_cheaper_step),
        draw=_drawn_each(paper_figures.draw_error_against_flops),
        tabled=False,
    ),
    Chapter(
        "fig3",
        "Figure 3: layer weights under noise and under blur",
        judge=lambda items: findings.find_where_weight_lies(layer_profiles(_records(items), LAYER_WEIGHTS)),
        draw=_scaled,
        tabled=False,
    ),
    Chapter(
        "fig4",
        "Figure 4: source against target, before scaling",
        instead="fig5",
        judge=lambda items: findings.find_flat_source(layer_profiles(_records(items), LAYER_SHARPNESS)),
        draw=_unscaled,
        tabled=False,
    ),
    Chapter(
        "fig5",
        "Figure 5: the Fisher diagonal of every layer",
        instead="fig4",
        judge=lambda items: findings.find_flat_diagonal(layer_profiles(_records(items), LAYER_SHARPNESS)),
        draw=_diagonal,
        tabled=False,
    ),
    Chapter("stress", "Long and hard streams", draw=_drawn_each(draw_error_by_round)),
    Chapter("tuning", "Settings chosen on held-out corruptions"),
    Chapter("tuning-lowest", "The lowest error on held-out corruptions, and what it costs"),
    Chapter("tuning-short", "Settings chosen on a short stream, and what they cost"),
    Chapter("causes", "Looked into: why LAW parts from the paper on CIFAR-100-C"),
    Chapter("cifar10-c", "CIFAR-10-C by `driftlaw run`"),
    Chapter("speed", "Faster steps, and what they cost in error"),
    Chapter("embedded", "The embedded network", folders=("embedded", "embedded-methods")),
)
"""The experiments in the order of the document."""

PLAIN = ("tuning", "tuning-lowest", "tuning-short", "causes", "cifar10-c", "speed", "embedded")
"""Chapters that are no experiment of the paper: nobody waits for them."""
