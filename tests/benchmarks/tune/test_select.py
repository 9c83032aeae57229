"""``select``: the lowest mean among settings that are nowhere much worse than BN-1."""

from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner

from benchmarks.tune.select import choose, describe, select
from driftlaw.errors import UsageError
from tests.reports.example_records import make_record

HELD_OUT = ("speckle_noise", "gaussian_blur", "clean")


def run(method, errors, order="shuffled", **settings):
    by_domain = dict(zip(HELD_OUT, errors, strict=True))
    return make_record(method, by_domain, settings=settings, stream={"order": order, "corruptions": list(HELD_OUT)})


@pytest.fixture
def records():
    """Three settings on two streams. The lowest mean is that of a setting which is worse than BN-1 on clean images."""
    return [
        *(run("norm", (30, 30, 10), order) for order in ("shuffled", "dirichlet")),
        *(run("law_plus", (20, 20, 12), order, anchor=0.0) for order in ("shuffled", "dirichlet")),
        *(run("law_plus", (24, 24, 10), order, anchor=0.01) for order in ("shuffled", "dirichlet")),
        *(run("law_plus", (26, 26, 10), order, anchor=0.1) for order in ("shuffled", "dirichlet")),
        run("law_plus", (1, 1, 1), anchor=0.5),
        run("tent", (2, 2, 2)),
    ]


def test_the_lowest_setting_that_is_nowhere_worse_is_chosen(records):
    (network,) = choose(records, "law_plus", "norm", 0.5)["networks"]
    assert network["choice"] == {"anchor": 0.01}
    assert [(c["settings"]["anchor"], c["allowed"]) for c in network["candidates"]] == [
        (0.0, False),
        (0.01, True),
        (0.1, True),
    ]
    assert network["candidates"][0]["largest_excess"] == 2.0
    assert network["candidates"][0]["where"].endswith(", clean 5")
    assert network["incomplete"] == 1
    assert choose(records, "law_plus", "norm", 2.0)["networks"][0]["choice"] == {"anchor": 0.0}


def test_rounds_and_seeds_are_averaged(records):
    more = [run("law_plus", (20, 20, 10), order, anchor=0.01) for order in ("shuffled", "dirichlet")]
    (network,) = choose(records + more, "law_plus", "norm", 0.5)["networks"]
    chosen = next(c for c in network["candidates"] if c["settings"] == network["choice"])
    assert (chosen["mean_error"], chosen["seeds"]) == (pytest.approx((22 + 22 + 10) / 3, abs=1e-3), 2)


def test_no_choice_is_possible(records):
    document = choose(records[:4], "law_plus", "norm", 0.5)
    assert document["networks"][0]["choice"] is None
    assert "No settings are within 0.5 points of norm everywhere." in describe(document)


def test_missing_baselines_and_benchmark_corruptions_are_errors(records):
    with pytest.raises(UsageError, match=r"norm was not run on .*dirichlet"):
        choose(records[:1] + records[2:], "law_plus", "norm", 0.5)
    with pytest.raises(UsageError, match="on which results are reported"):
        choose([make_record("norm")], "law_plus", "norm", 0.5)
    with pytest.raises(UsageError, match="no finished record"):
        choose([], "law_plus", "norm", 0.5)


def test_the_command_reads_folders_and_writes_a_file(records, tmp_path):
    from driftlaw.records import dump_line

    for number, record in enumerate(records):
        path = tmp_path / "records" / f"{number}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"".join(map(dump_line, [record.header, *record.batches, record.closing])))
    app = typer.Typer()
    app.command()(select)
    done = CliRunner().invoke(app, [str(path.parent), "--out", str(tmp_path / "selection.json")])
    assert done.exit_code == 0, done.output
    assert "*  19.33" in done.output
    assert json.loads((tmp_path / "selection.json").read_text())["networks"][0]["choice"] == {"anchor": 0.01}
