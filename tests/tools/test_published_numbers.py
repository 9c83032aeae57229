from statistics import fmean

import pytest

from driftlaw.errors import UsageError
from driftlaw.reports.published import FOLDER, TABLES, paper_protocol, paper_table

METHODS = {"source", "norm", "tent", "cotta", "adacontrast", "rmt", "gtta", "law", "autorgn"}
DATASETS = {"cifar10-c", "cifar100-c", "imagenet-c"}
ROWS = {1: 24, 2: 24, 3: 9, 4: 18, 5: 21, 6: 24, 7: 18, 8: 18, 9: 15, 10: 39}


def figures(number):
    return {
        (row.dataset, row.network, row.method, *sorted(row.settings.items())): row for row in paper_table(number).rows
    }


@pytest.mark.parametrize("number", TABLES)
def test_table_is_complete(number):
    table = paper_table(number)
    assert table.source.endswith(f"Table {number}")
    assert table.about
    assert len(figures(number)) == len(table.rows) == ROWS[number]
    assert {row.method for row in table.rows} <= METHODS
    assert {row.dataset for row in table.rows} <= DATASETS
    assert all(0 < row.mean < 100 for row in table.rows)


def test_folder_contains_the_tables_and_the_protocol():
    assert {path.name for path in FOLDER.iterdir()} == {*(f"table{number}.toml" for number in TABLES), "protocol.toml"}


def test_unknown_table_is_an_error():
    with pytest.raises(UsageError, match="Unknown table of the paper '11'"):
        paper_table(11)


def test_means_agree_with_errors():
    for row in paper_table(1).rows:
        assert list(row.errors) == paper_protocol().corruptions
        assert fmean(row.errors.values()) == pytest.approx(row.mean, abs=0.05 + 1e-9), (row.dataset, row.method)


def test_changes_agree_with_errors_except_for_two():
    continual = {key[:3]: row.mean for key, row in figures(1).items()}
    tent = {row.dataset: row.mean for row in paper_table(3).rows if row.method == "tent"}
    gaps = {
        (2, row.dataset, row.method): (row.highest - continual[row.dataset, row.network, row.method], row.change)
        for row in paper_table(2).rows
    } | {(3, row.dataset, row.method): (row.mean - tent[row.dataset], row.change) for row in paper_table(3).rows}
    wrong = {
        key for key, (computed, printed) in gaps.items() if printed is not None and abs(computed - printed) > 0.051
    }
    assert wrong == {(2, "cifar100-c", "rmt"), (3, "cifar10-c", "law")}
    for number, _, method in wrong:
        assert any(method in remark for remark in paper_table(number).remarks)


def test_tables_with_the_same_runs_agree():
    continual = figures(1)
    for number in (6, 7, 8):
        for key, row in figures(number).items():
            assert key not in continual or continual[key].mean == row.mean
    for key, row in figures(5).items():
        assert figures(10)[key].mean == row.mean


@pytest.mark.parametrize(
    ("number", "setting"), [(4, "consistency_weight"), (5, "tau"), (9, "fisher_decay"), (10, "tau")]
)
def test_ablations_contain_the_default_setting(number, setting):
    for name, dataset in paper_protocol().datasets.items():
        own = [
            row
            for row in paper_table(number).rows
            if row.dataset == name and row.settings[setting] == dataset.law[setting]
        ]
        (main,) = [row for row in paper_table(1).rows if (row.dataset, row.method) == (name, "law")]
        assert [row.mean for row in own] == pytest.approx([main.mean], abs=0.05)
        assert own[0].mean == min(row.mean for row in paper_table(number).rows if row.dataset == name)


def test_gradual_row_has_two_summaries():
    row = next(row for row in paper_table(2).rows if (row.dataset, row.method) == ("cifar10-c", "law"))
    assert row.summaries == (9.6, 11.4)


def test_names_in_records_are_mapped_to_the_paper():
    protocol = paper_protocol()
    assert protocol.dataset_of("cifar10-embedded").name == "cifar10-c"
    assert protocol.dataset_of("mnist") is None
    assert protocol.network_of("resnet50_keras") == "resnet50"
    assert protocol.network_of("wrn_16_1") == "wrn_16_1"
