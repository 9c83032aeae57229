"""Sections of RESULTS.md: which records each one shows, which claims it checks, and which figures it contains."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from driftlaw.records import RunRecord
from driftlaw.reports.document import Figure
from driftlaw.reports.figures import draw_error_by_round
from driftlaw.reports.published import Comparison
from driftlaw.reports.result_table import ResultTable
from tools.results import claims, layer_claims, layer_figures, table_figures
from tools.results.claims import ClaimCheck
from tools.results.domain_comparison import compare_domains
from tools.results.layer_profiles import LAYER_IMPORTANCE, LAYER_WEIGHTS, Profile, layer_profiles

CheckClaims = Callable[[Sequence[Comparison]], list[ClaimCheck]]
DrawFigures = Callable[[Sequence[Comparison]], list[tuple[str, Figure | None]]]


@dataclass(frozen=True)
class Section:
    """A section of RESULTS.md.

    Attributes:
        name: name of the experiment in ``driftlaw reproduce``, or of a folder.
        title: heading.
        folders: folders in ``results/`` with its records; if empty, the folder ``name``.
        fallback: experiment whose records are used if there are none.
        tables: tables of the paper to compare with first.
        check: checks the paper's claims.
        draw: draws the figures, each with a suffix for its name.
        compare: returns Markdown blocks that compare runs and precede the tables.
        has_tables: True if its runs are shown as tables; those for figures about layers are not.
        setting: setting that the section varies; rows are sorted by it.
    """

    name: str
    title: str
    folders: tuple[str, ...] = ()
    fallback: str = ""
    tables: tuple[int, ...] = ()
    check: CheckClaims = lambda comparisons: []
    draw: DrawFigures = lambda comparisons: []
    compare: Callable[[Sequence[Comparison]], list[str]] = lambda comparisons: []
    has_tables: bool = True
    setting: str = ""


def _per_table(check: Callable[[ResultTable], list[ClaimCheck]]) -> CheckClaims:
    return lambda comparisons: [result for item in comparisons for result in check(item.table)]


def _per_comparison(*checks: Callable[[Comparison], list[ClaimCheck]]) -> CheckClaims:
    return lambda comparisons: [result for check in checks for item in comparisons for result in check(item)]


def _all_of(*checks: CheckClaims) -> CheckClaims:
    return lambda comparisons: [result for check in checks for result in check(comparisons)]


def _figure_per_table(draw: Callable[[ResultTable], Figure | None]) -> DrawFigures:
    def draw_all(comparisons: Sequence[Comparison]) -> list[tuple[str, Figure | None]]:
        drawn = [(item.table, figure) for item in comparisons if (figure := draw(item.table)) is not None]
        names = [_dataset_and_model(table) for table, _ in drawn]
        return [
            (name if names.count(name) == 1 else f"{name}-{table.protocol.key[:8]}", figure)
            for name, (table, figure) in zip(names, drawn, strict=True)
        ]

    return draw_all


def _dataset_and_model(table: ResultTable) -> str:
    header = table.rows[0].first.header
    return f"{header['stream']['dataset']['name']}-{header['model']['name']}".replace(":", "-")


def _sweep(
    number: int, title: str, setting: str, symbol: str, *checks: Callable[[ResultTable, str, str], list[ClaimCheck]]
) -> Section:
    """Return the section of a table of the paper that varies one setting; ``symbol`` is its name in the paper."""

    def bind(check: Callable[[ResultTable, str, str], list[ClaimCheck]]) -> CheckClaims:
        return _per_table(lambda table: check(table, setting, symbol))

    return Section(
        f"table{number}",
        f"Table {number}: {title}",
        tables=(number,),
        check=_all_of(*map(bind, checks)),
        draw=lambda comparisons: [("", table_figures.draw_sweep(comparisons, setting, symbol))],
        setting=setting,
    )


def _profiles(comparisons: Iterable[Comparison], diagnostic: str) -> list[Profile]:
    records: list[RunRecord] = [
        record for item in comparisons for row in item.table.rows for record in row.records if record.finished
    ]
    return layer_profiles(records, diagnostic)


def _layer_section(
    name: str,
    title: str,
    diagnostic: str,
    check: Callable[[Sequence[Profile]], list[ClaimCheck]],
    draw: Callable[[Sequence[Profile]], Figure | None],
    fallback: str = "",
) -> Section:
    """Return the section of a figure of the paper about layers."""
    return Section(
        name,
        title,
        fallback=fallback,
        check=lambda comparisons: check(_profiles(comparisons, diagnostic)),
        draw=lambda comparisons: [("", draw(_profiles(comparisons, diagnostic)))],
        has_tables=False,
    )


SECTIONS = (
    Section(
        "table1",
        "Table 1: continual adaptation, severity 5",
        tables=(1,),
        check=_all_of(
            _per_comparison(claims.check_agreement, claims.check_gain, claims.check_tuned),
            _per_table(claims.check_lowest_without_train_data),
        ),
    ),
    Section("table2", "Table 2: gradual adaptation", tables=(2,), check=_per_comparison(claims.check_agreement)),
    Section(
        "table3",
        "Table 3: LAW and AutoRGN",
        tables=(3,),
        check=_per_table(lambda table: claims.check_order(table, ["law", "autorgn", "tent"])),
    ),
    _sweep(4, "weight λ of the consistency loss", "consistency_weight", "λ", claims.check_minimum),
    _sweep(5, "exponent τ of the scaler", "tau", "τ", claims.check_minimum),
    Section("table6", "Table 6: other models, CIFAR-10-C", tables=(6,), check=_per_comparison(claims.check_agreement)),
    Section("table7", "Table 7: other models, CIFAR-100-C", tables=(7,), check=_per_comparison(claims.check_agreement)),
    Section("table8", "Table 8: other models, ImageNet-C", tables=(8,), check=_per_comparison(claims.check_agreement)),
    _sweep(9, "decay rate γ of the Fisher information", "fisher_decay", "γ", claims.check_largest_is_best),
    _sweep(10, "τ starting at 0", "tau", "τ", claims.check_minimum, claims.check_divergence),
    Section(
        "fig1a",
        "Figure 1a: error and adapted part of the model",
        check=_per_table(claims.check_parts),
        draw=_figure_per_table(table_figures.draw_adapted_part),
    ),
    Section(
        "fig1b",
        "Figure 1b: error and FLOPs",
        fallback="table1",
        check=_per_table(claims.check_cost),
        draw=_figure_per_table(table_figures.draw_error_and_flops),
        has_tables=False,
    ),
    _layer_section(
        "fig3",
        "Figure 3: layer weights under noise and blur",
        LAYER_WEIGHTS,
        layer_claims.check_weight_distribution,
        layer_figures.draw_layer_weights,
    ),
    _layer_section(
        "fig4",
        "Figure 4: layer importance on source and target images",
        LAYER_IMPORTANCE,
        layer_claims.check_importance_on_source,
        layer_figures.draw_source_and_target,
        fallback="fig5",
    ),
    _layer_section(
        "fig5",
        "Figure 5: Fisher diagonal per layer",
        LAYER_IMPORTANCE,
        layer_claims.check_fisher_on_source,
        layer_figures.draw_fisher_diagonal,
        fallback="fig4",
    ),
    Section("stress", "Long and difficult streams", draw=_figure_per_table(draw_error_by_round)),
    Section("tuning", "Settings tuned on held-out corruptions"),
    Section("tuning-lowest", "Settings with the lowest error on held-out corruptions"),
    Section("tuning-short", "Settings tuned on a short stream"),
    Section("tuning-law_plus", "LAW+: settings selected on held-out streams"),
    Section("ablation-law_plus", "LAW+: ingredients"),
    Section("law_plus", "LAW+ on mixed, clean and recurring images", draw=_figure_per_table(draw_error_by_round)),
    Section("causes", "Investigation: LAW on CIFAR-100-C compared with the paper"),
    Section("cifar10-c", "Source-free methods on CIFAR-10-C"),
    Section("imagenet-c", "ImageNet-C as published, corruption by corruption", tables=(1,), compare=compare_domains),
    Section("camvid-half", "Segmentation of CamVid at half resolution"),
    Section("camvid-augmentation", "Photometric and geometric augmentation on CamVid"),
    Section("speed", "Faster steps and their error"),
    Section("embedded", "Embedded model", folders=("embedded", "embedded-methods")),
)
"""Sections in the order of the document."""

OPTIONAL = (
    "tuning",
    "tuning-lowest",
    "tuning-short",
    "tuning-law_plus",
    "ablation-law_plus",
    "law_plus",
    "causes",
    "cifar10-c",
    "imagenet-c",
    "camvid-half",
    "camvid-augmentation",
    "speed",
    "embedded",
)
"""Sections that are not experiments of the paper; the document does not list them as missing."""
