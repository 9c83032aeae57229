import random
from dataclasses import replace
from pathlib import Path

import pytest

from driftlaw.errors import UsageError
from driftlaw.reports import build_report
from driftlaw.reports.tables import make_run_row, make_tables
from tests.reports.example_records import CORRUPTIONS, make_record


def by_label(table):
    return {row.label: row for row in table.rows}


def test_known_wrong_predictions_give_known_errors():
    (table,) = make_tables([make_record("law", range(10, 25))])
    (row,) = table.rows
    assert table.domains == tuple(CORRUPTIONS)
    assert [cell.mean for cell in row.domains] == list(range(10, 25))
    assert table.summary_names == ("mean",)
    assert row.summaries[0].mean == pytest.approx(17.0)


def test_one_seed_has_no_standard_deviation():
    (table,) = make_tables([make_record()])
    assert table.rows[0].summaries[0].spread is None


def test_mean_and_standard_deviation_over_seeds():
    (table,) = make_tables([make_record(errors=[error] * 15, seed=seed) for seed, error in [(3, 13), (1, 10), (2, 13)]])
    (row,) = table.rows
    assert row.seeds == [1, 2, 3]
    assert row.summaries[0].mean == pytest.approx(12.0)
    assert row.summaries[0].spread == pytest.approx(3.0**0.5)


def test_lowest_and_second_lowest_are_marked_per_column():
    errors = {"source": [40, 10], "norm": [20, 30], "law": [10, 20]}
    records = [
        make_record(name, dict(zip(["fog", "snow"], values, strict=True)), batches_per_domain=6)
        for name, values in errors.items()
    ]
    rows = by_label(make_tables(records)[0])
    assert [[cell.mark for cell in rows[name].domains] for name in ("Source", "BN-1", "LAW")] == [
        ["", "best"],
        ["second", ""],
        ["best", "second"],
    ]
    assert [rows[name].summaries[0].mark for name in ("LAW", "Source", "BN-1")] == ["lowest", "second", "second"]


def test_best_needs_significant_differences_from_all_rows():
    clear = {"source": [45] * 15, "norm": [30] * 15, "law": [20] * 15}
    rows = by_label(make_tables([make_record(name, errors) for name, errors in clear.items()])[0])
    assert [rows[name].summaries[0].mark for name in ("LAW", "BN-1", "Source")] == ["best", "second", ""]
    unclear = {"norm": [10, 30] * 7 + [20], "law": [19] * 15}
    rows = by_label(make_tables([make_record(name, errors) for name, errors in unclear.items()])[0])
    assert [rows[name].summaries[0].mark for name in ("LAW", "BN-1")] == ["lowest", "second"]


def test_few_batches_are_not_significant_even_if_repeated_in_rounds():
    def mark(batches, rounds):
        runs = [
            make_record(*run, batches_per_domain=batches * rounds) for run in (("norm", {"a": 30}), ("law", {"a": 20}))
        ]
        for line in [line for run in runs for line in run.batches]:
            line["domain"]["round"] = line["batch"] // batches
        return by_label(make_tables(runs)[0])["LAW"].domains[0].mark

    assert mark(6, 1) == mark(6, 3) == "best"
    assert mark(2, 1) == mark(2, 3) == mark(2, 10) == "lowest"


def test_rows_without_common_seeds_are_not_compared():
    records = [make_record("norm", [30] * 15, seed=1), make_record("law", [20] * 15, seed=2)]
    rows = by_label(make_tables(records)[0])
    assert rows["LAW"].summaries[0].mark == "lowest"
    assert rows["BN-1"].vs_best is None


def test_rows_have_the_difference_from_the_best_row():
    records = [make_record(name, errors) for name, errors in {"norm": [32] * 15, "law": [20] * 15}.items()]
    rows = by_label(make_tables(records)[0])
    assert rows["LAW"].vs_best is None
    assert rows["BN-1"].vs_best.mean == pytest.approx(12.0)
    assert (rows["BN-1"].vs_best.seeds, rows["BN-1"].vs_best.units) == (1, 15)


def test_errors_that_print_alike_have_the_same_mark():
    close = [make_record(name, {"fog": error}, batch_size=10_000) for name, error in [("law", 10.01), ("tent", 10.04)]]
    rows = make_tables([*close, make_record("norm", {"fog": 11.0}, batch_size=10_000)])[0].rows
    assert {row.label: row.domains[0].mark for row in rows} == {"LAW": "lowest", "TENT": "lowest", "BN-1": "second"}


def test_single_row_is_not_marked():
    assert make_tables([make_record()])[0].rows[0].summaries[0].mark == ""


def test_difference_from_source_in_percentage_points():
    (table,) = make_tables([make_record("law", [20] * 15), make_record("source", [45] * 15)])
    assert by_label(table)["LAW"].difference == pytest.approx(-25.0)
    assert by_label(table)["Source"].difference is None


def test_no_difference_without_source():
    (table,) = make_tables([make_record("law"), make_record("tent")])
    assert table.baseline is None
    assert all(row.difference is None for row in table.rows)


def test_source_is_first_and_best_last():
    errors = {"law": 10, "tent": 20, "source": 15, "norm": 30}
    (table,) = make_tables([make_record(name, [error] * 15) for name, error in errors.items()])
    assert [row.method for row in table.rows] == ["source", "norm", "tent", "law"]


def test_different_protocols_have_different_tables():
    records = [make_record("source"), make_record("law", stream={"order": "dirichlet"}), make_record("tent")]
    tables = make_tables(records)
    assert sorted(sorted(row.method for row in table.rows) for table in tables) == [["law"], ["source", "tent"]]


def test_table_names_contain_the_weights_if_they_differ():
    def names(*trained):
        models = [{"name": "wrn_28_10", "weights": weights, "sha256": weights * 9} for weights in trained]
        return [table.protocol.name for table in make_tables(make_record("law", header={"model": m}) for m in models)]

    (alone,) = names("short")
    assert alone.endswith("· wrn_28_10")
    assert names("short", "at home/longer.pt") == [f"{alone} (longer.pt)", f"{alone} (short)"]
    first, second = names("here/best.pt", "there/best.pt")
    assert first != second
    assert first.startswith(f"{alone} (best.pt ")


def test_note_about_different_seeds():
    few, many = [make_record("law")], [make_record("tent", seed=seed) for seed in (1, 2)]
    assert any("different seeds" in note for note in make_tables([*few, *many])[0].notes)
    assert not any("seeds" in note for note in make_tables([*few, many[0]])[0].notes)


def test_labels_contain_only_differing_settings():
    settings = {"learning_rate": 0.001, "tau": 1.0}
    records = [make_record("law", settings=settings), make_record("law", settings={**settings, "tau": 0.6})]
    (table,) = make_tables([*records, make_record("tent", settings={"learning_rate": 0.001})])
    assert sorted(by_label(table)) == ["LAW tau=0.6", "LAW tau=1.0", "TENT"]


def test_unfinished_run_has_its_own_unranked_row():
    finished = [make_record("law", [20] * 15, seed=1), make_record("tent", [30] * 15, seed=1)]
    started = make_record("law", [1] * 15, seed=2, finished=False, batches_done=5)
    (table,) = make_tables([started, *finished])
    unfinished = table.rows[-1]
    assert not unfinished.finished
    assert unfinished.progress == "5 of 30 batches"
    assert [cell.mean for cell in unfinished.domains[:3]] == [1.0, 1.0, None]  # the third domain is incomplete
    assert unfinished.summaries[0].mean is None
    assert table.ranked[0].seeds == [1]
    assert table.ranked[0].summaries[0].mark == "best"
    assert "LAW, seed 2 is unfinished (5 of 30 batches" in table.notes[0]


def test_run_without_batches_has_no_errors():
    (table,) = make_tables([make_record(finished=False, batches_done=0)])
    assert all(cell.mean is None for cell in table.rows[0].domains)


def test_copy_of_a_record_is_skipped():
    one = make_record(path=Path("a.jsonl"))
    (table,) = make_tables([replace(one, path=Path("b.jsonl")), one])
    assert table.rows[0].records == (one,)
    assert table.notes == ("Skipped b.jsonl: law with seed 1 is also in a.jsonl.",)


def test_note_about_different_commits():
    (table,) = make_tables([make_record(seed=1), make_record(seed=2, header={"commit": "def5678"})])
    assert table.notes == ("LAW: its seeds were run with different commits (abc1234, def5678).",)


def run_in(precision, seed, error=20):
    """Return a run of LAW; with None as precision, the record does not contain it."""
    record = make_record("law", [error] * 15, seed=seed)
    execution = {} if precision is None else {"execution": {"precision": precision}}
    return replace(record, header=record.header | execution)


def test_compiled_run_has_its_own_row():
    written, compiled = run_in("float32", 1), run_in("float32", 1, error=21)
    compiled.header["execution"]["compiled"] = True
    (table,) = make_tables([written, compiled])
    assert {row.label for row in table.rows} == {"LAW", "LAW compiled=true"}


def test_run_without_precision_counts_as_float32():
    (table,) = make_tables([run_in(None, 1), run_in("bf16", 2, 30), run_in("float32", 3, 40)])
    assert sorted(row.seeds for row in table.rows) == [[1, 3], [2]]


def test_gradual_stream_has_summaries_over_all_severities_and_the_highest():
    record = make_record("law", {"fog": 50, "snow": 20}, severities=(1, 2, 3, 4, 5, 4, 3, 2, 1))
    (table,) = make_tables([record])
    (row,) = table.rows
    assert table.summary_names == ("@1-5", "@5")
    assert row.summaries[0].mean == pytest.approx((10 + 4) * 25 / 18)
    assert row.summaries[1].mean == pytest.approx(35.0)
    assert row.domains[0].mean == pytest.approx(250 / 9)


def test_row_of_a_single_run():
    records = [make_record(errors=[error] * 15, seed=error) for error in (10, 20)]
    (table,) = make_tables(records)
    assert make_run_row(records[1], table).summaries[0].mean == pytest.approx(20.0)


def test_order_of_records_does_not_matter():
    records = [make_record(name, [seed] * 15, seed=seed) for name in ("law", "tent", "source") for seed in (1, 2)]
    shuffled = random.Random(0).sample(records, len(records))
    results = [[(row.label, row.seeds) for row in make_tables(order)[0].rows] for order in (records, shuffled)]
    assert results[0] == results[1]


def test_no_records_is_an_error():
    with pytest.raises(UsageError, match="no record"):
        make_tables([])


def test_clean_images_are_not_a_severity():
    records = [make_record("law", {"clean": 5, "fog": 20})]
    for line in records[0].batches[:2]:
        line["domain"]["severity"] = 0
    assert make_tables(records)[0].summary_names == ("mean",)


def test_mixed_stream_has_one_column():
    (table,) = make_tables(
        [make_record("law", {"mixed": 20}, stream={"schedule": "mixed", "corruptions": CORRUPTIONS})]
    )
    assert table.domains == ("mixed",)


def cost(*records):
    return make_tables(records)[0].rows[0].cost


def test_cost_in_forward_passes():
    assert cost(make_record("law")).forward_passes == pytest.approx(8.0)
    assert cost(make_record("source")).forward_passes == pytest.approx(1.0)


def test_seconds_are_the_median_over_steps():
    record = make_record("law")
    record.batches[0]["timing"]["seconds"] = 99.0
    assert cost(record).seconds == pytest.approx(0.4)


def test_runs_on_a_shared_gpu_are_ignored_for_time():
    records = [make_record("law", seed=seed) for seed in (1, 2)]
    records[0].closing["timing"]["shared_gpu"] = True
    records[0].batches[0]["timing"]["seconds"] = records[0].batches[1]["timing"]["seconds"] = 99.0
    assert cost(*records).seconds == pytest.approx(0.4)
    records[1].closing["timing"]["shared_gpu"] = True
    assert cost(*records).seconds is None


def test_memory_is_the_largest_peak_over_seeds():
    records = [make_record(seed=seed) for seed in (1, 2)]
    records[1].closing["timing"]["peak_bytes"] = 200_000_000
    assert cost(*records).peak_bytes == 200_000_000


def test_unfinished_run_has_the_flops_of_its_first_batch():
    assert cost(make_record("tent", finished=False, batches_done=3)).forward_passes == pytest.approx(2.0)


def test_unrecorded_costs_are_none():
    record = make_record()
    del record.batches[0]["cost"], record.closing["cost"], record.closing["timing"]["peak_bytes"]
    result = cost(record)
    assert (result.forward_passes, result.step_flops, result.peak_bytes) == (None, None, None)


@pytest.mark.parametrize("finished", [True, False])
def test_predictions_that_are_not_finite_are_noted(finished):
    good, spoiled = make_record("law"), make_record("tent", finished=finished)
    for line in spoiled.batches[:3]:
        line["not_finite"] = 500
    (table,) = make_tables([good, spoiled])
    notes = [note for note in table.notes if "NaN" in note]
    assert notes == ["TENT: 1,500 of 3,000 predictions were NaN or infinite. They count as wrong."]
    page = build_report([good, spoiled], "html")
    assert "1,500 of 3,000 predictions were NaN or infinite" in page
