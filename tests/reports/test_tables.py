import random
from dataclasses import replace
from pathlib import Path

import pytest

from driftlaw.errors import UsageError
from driftlaw.reports.tables import make_run_row, make_tables, report_notes
from tests.reports.example_records import CORRUPTIONS, make_record


def by_label(table):
    return {row.label: row for row in table.rows}


def test_known_wrong_answers_give_known_cells():
    (table,) = make_tables([make_record("law", range(10, 25))])
    (row,) = table.rows
    assert table.domains == tuple(CORRUPTIONS)
    assert [cell.mean for cell in row.domains] == list(range(10, 25))
    assert table.summaries == ("mean",)
    assert row.summaries[0].mean == pytest.approx(17.0)


def test_one_seed_has_no_spread():
    (table,) = make_tables([make_record()])
    assert table.rows[0].summaries[0].spread is None


def test_seeds_are_averaged_and_their_sample_deviation_told():
    (table,) = make_tables([make_record(errors=[error] * 15, seed=seed) for seed, error in [(3, 13), (1, 10), (2, 13)]])
    (row,) = table.rows
    assert row.seeds == [1, 2, 3]
    assert row.summaries[0].mean == pytest.approx(12.0)
    assert row.summaries[0].spread == pytest.approx(3.0**0.5)


def test_the_lowest_and_the_second_lowest_are_marked_in_every_column():
    errors = {"source": [40, 10], "norm": [20, 30], "law": [10, 20]}
    records = [
        make_record(name, dict(zip(["fog", "snow"], values, strict=True)), batches_a_domain=6)
        for name, values in errors.items()
    ]
    rows = by_label(make_tables(records)[0])
    assert [[cell.mark for cell in rows[name].domains] for name in ("Source", "BN-1", "LAW")] == [
        ["", "best"],
        ["second", ""],
        ["best", "second"],
    ]
    assert [rows[name].summaries[0].mark for name in ("LAW", "Source", "BN-1")] == ["second", "second", "second"]


def test_best_is_only_who_is_parted_from_every_other_row():
    sure = {"source": [45] * 15, "norm": [30] * 15, "law": [20] * 15}
    rows = by_label(make_tables([make_record(name, errors) for name, errors in sure.items()])[0])
    assert [rows[name].summaries[0].mark for name in ("LAW", "BN-1", "Source")] == ["best", "second", ""]
    doubtful = {"norm": [10, 30] * 7 + [20], "law": [19] * 15}
    rows = by_label(make_tables([make_record(name, errors) for name, errors in doubtful.items()])[0])
    assert [rows[name].summaries[0].mark for name in ("LAW", "BN-1")] == ["second", "second"]


def test_few_batches_part_nothing_and_rounds_of_the_same_ones_are_few():
    def mark(batches, rounds):
        runs = [
            make_record(*run, batches_a_domain=batches * rounds) for run in (("norm", {"a": 30}), ("law", {"a": 20}))
        ]
        for line in [line for run in runs for line in run.batches]:
            line["domain"]["round"] = line["batch"] // batches
        return by_label(make_tables(runs)[0])["LAW"].domains[0].mark

    assert mark(6, 1) == mark(6, 3) == "best"
    assert mark(2, 1) == mark(2, 3) == mark(2, 10) == "second"


def test_rows_that_share_no_seed_are_not_parted():
    records = [make_record("norm", [30] * 15, seed=1), make_record("law", [20] * 15, seed=2)]
    rows = by_label(make_tables(records)[0])
    assert rows["LAW"].summaries[0].mark == "second"
    assert rows["BN-1"].to_lowest is None


def test_every_row_tells_how_far_it_is_from_the_lowest():
    records = [make_record(name, errors) for name, errors in {"norm": [32] * 15, "law": [20] * 15}.items()]
    rows = by_label(make_tables(records)[0])
    assert rows["LAW"].to_lowest is None
    assert rows["BN-1"].to_lowest.mean == pytest.approx(12.0)
    assert (rows["BN-1"].to_lowest.seeds, rows["BN-1"].to_lowest.units) == (1, 15)


def test_figures_that_print_alike_share_their_mark():
    close = [make_record(name, {"fog": error}, batch_size=10_000) for name, error in [("law", 10.01), ("tent", 10.04)]]
    rows = make_tables([*close, make_record("norm", {"fog": 11.0}, batch_size=10_000)])[0].rows
    assert {row.label: row.domains[0].mark for row in rows} == {"LAW": "second", "TENT": "second", "BN-1": "second"}


def test_a_row_alone_is_not_ranked():
    assert make_tables([make_record()])[0].rows[0].summaries[0].mark == ""


def test_the_difference_to_source_is_in_points():
    (table,) = make_tables([make_record("law", [20] * 15), make_record("source", [45] * 15)])
    assert by_label(table)["LAW"].difference == pytest.approx(-25.0)
    assert by_label(table)["Source"].difference is None


def test_without_source_there_is_no_difference():
    (table,) = make_tables([make_record("law"), make_record("tent")])
    assert table.baseline is None
    assert all(row.difference is None for row in table.rows)


def test_source_comes_first_and_the_best_last():
    errors = {"law": 10, "tent": 20, "source": 15, "norm": 30}
    (table,) = make_tables([make_record(name, [error] * 15) for name, error in errors.items()])
    assert [row.method for row in table.rows] == ["source", "norm", "tent", "law"]


def test_different_protocols_are_never_in_one_table():
    records = [make_record("source"), make_record("law", stream={"order": "dirichlet"}), make_record("tent")]
    tables = make_tables(records)
    assert sorted(sorted(row.method for row in table.rows) for table in tables) == [["law"], ["source", "tent"]]


def test_tables_of_one_architecture_are_told_apart_by_their_weights_where_these_differ():
    def names(*trained):
        models = [{"name": "wrn_28_10", "weights": weights, "sha256": weights * 9} for weights in trained]
        return [table.protocol.name for table in make_tables(make_record("law", header={"model": m}) for m in models)]

    (alone,) = names("short")
    assert alone.endswith("· wrn_28_10")
    assert names("short", "at home/longer.pt") == [f"{alone} (longer.pt)", f"{alone} (short)"]
    first, second = names("here/best.pt", "there/best.pt")
    assert first != second
    assert first.startswith(f"{alone} (best.pt ")


def test_rows_of_different_seeds_are_remarked_upon():
    few, many = [make_record("law")], [make_record("tent", seed=seed) for seed in (1, 2)]
    assert any("different seeds" in note for note in make_tables([*few, *many])[0].notes)
    assert not any("seeds" in note for note in make_tables([*few, many[0]])[0].notes)


def test_two_settings_of_a_method_are_told_apart_by_what_differs_alone():
    settings = {"learning_rate": 0.001, "tau": 1.0}
    records = [make_record("law", settings=settings), make_record("law", settings={**settings, "tau": 0.6})]
    (table,) = make_tables([*records, make_record("tent", settings={"learning_rate": 0.001})])
    assert sorted(by_label(table)) == ["LAW tau=0.6", "LAW tau=1.0", "TENT"]


def test_an_unfinished_run_is_marked_not_ranked_and_never_mixed_in():
    whole = [make_record("law", [20] * 15, seed=1), make_record("tent", [30] * 15, seed=1)]
    torn = make_record("law", [1] * 15, seed=2, finished=False, batches_done=5)
    (table,) = make_tables([torn, *whole])
    unfinished = table.rows[-1]
    assert not unfinished.finished
    assert unfinished.progress == "5 of 30 batches"
    assert [cell.mean for cell in unfinished.domains[:3]] == [1.0, 1.0, None], "a torn domain is no figure"
    assert unfinished.summaries[0].mean is None
    assert table.ranked[0].seeds == [1]
    assert table.ranked[0].summaries[0].mark == "best"
    assert "LAW, seed 2 is unfinished (5 of 30 batches" in report_notes([table])[0]


def test_a_run_that_has_only_begun_is_a_row_of_dashes():
    (table,) = make_tables([make_record(finished=False, batches_done=0)])
    assert all(cell.mean is None for cell in table.rows[0].domains)


def test_a_copy_of_a_record_does_not_count_as_another_seed():
    one = make_record(path=Path("a.jsonl"))
    (table,) = make_tables([replace(one, path=Path("b.jsonl")), one])
    assert table.rows[0].records == (one,)
    assert table.notes == ("left out b.jsonl: law with seed 1 is also in a.jsonl",)


def test_seeds_of_different_commits_are_remarked_upon():
    (table,) = make_tables([make_record(seed=1), make_record(seed=2, header={"commit": "def5678"})])
    assert table.notes == ("LAW: its seeds were run with different commits (abc1234, def5678)",)


def run_in(precision, seed, error=20):
    """A record of LAW; None as the precision: an early record, which says nothing of it."""
    record = make_record("law", [error] * 15, seed=seed)
    told = {} if precision is None else {"execution": {"precision": precision}}
    return replace(record, header=record.header | told)


def test_a_compiled_run_is_a_row_of_its_own():
    written, compiled = run_in("float32", 1), run_in("float32", 1, error=21)
    compiled.header["execution"]["compiled"] = True
    (table,) = make_tables([written, compiled])
    assert {row.label for row in table.rows} == {"LAW", "LAW compiled=true"}


def test_a_run_that_does_not_say_its_precision_joins_the_one_row_it_can_belong_to():
    (table,) = make_tables([run_in(None, 1), run_in("bf16", 2), run_in("bf16", 3)])
    (row,) = table.rows
    assert row.seeds == [1, 2, 3]
    assert row.settings["precision"] == "bf16"
    assert table.notes == ("LAW: the record of seed 1 does not say its precision",)


def test_a_run_that_does_not_say_its_precision_counts_as_float32_where_there_are_two_rows():
    (table,) = make_tables([run_in(None, 1), run_in("bf16", 2, 30), run_in("float32", 3, 40)])
    assert sorted(row.seeds for row in table.rows) == [[1, 3], [2]]


def test_a_run_that_does_not_say_its_precision_is_no_second_run_of_a_seed():
    (table,) = make_tables([run_in(None, 1), run_in("bf16", 1)])
    assert [row.seeds for row in table.rows] == [[1]]
    assert len(table.notes) == 1


def test_a_gradual_stream_has_a_column_over_all_severities_and_one_for_the_highest():
    record = make_record("law", {"fog": 50, "snow": 20}, severities=(1, 2, 3, 4, 5, 4, 3, 2, 1))
    (table,) = make_tables([record])
    (row,) = table.rows
    assert table.summaries == ("@1-5", "@5")
    assert row.summaries[0].mean == pytest.approx((10 + 4) * 25 / 18)
    assert row.summaries[1].mean == pytest.approx(35.0)
    assert row.domains[0].mean == pytest.approx(250 / 9)


def test_one_run_can_stand_under_the_columns_of_its_table():
    records = [make_record(errors=[error] * 15, seed=error) for error in (10, 20)]
    (table,) = make_tables(records)
    assert make_run_row(records[1], table).summaries[0].mean == pytest.approx(20.0)


def test_the_order_of_the_records_does_not_matter():
    records = [make_record(name, [seed] * 15, seed=seed) for name in ("law", "tent", "source") for seed in (1, 2)]
    shuffled = random.Random(0).sample(records, len(records))
    told = [[(row.label, row.seeds) for row in make_tables(order)[0].rows] for order in (records, shuffled)]
    assert told[0] == told[1]


def test_no_record_is_wrong_use():
    with pytest.raises(UsageError, match="no record"):
        make_tables([])


def test_clean_images_are_no_severity():
    records = [make_record("law", {"clean": 5, "fog": 20})]
    for line in records[0].batches[:2]:
        line["domain"]["severity"] = 0
    assert make_tables(records)[0].summaries == ("mean",)


def test_a_mixed_stream_is_one_column():
    (table,) = make_tables(
        [make_record("law", {"mixed": 20}, stream={"schedule": "mixed", "corruptions": CORRUPTIONS})]
    )
    assert table.domains == ("mixed",)
