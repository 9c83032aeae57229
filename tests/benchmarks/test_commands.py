"""``driftlaw bench step | memory | facts | floor | scaling``, called as a user calls them, on a tiny network."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from benchmarks import floor as floor_bench
from benchmarks import memory as memory_bench
from benchmarks.__main__ import app
from driftlaw.errors import UsageError

TINY = ("--models", "wrn_10_1", "--batch-sizes", "4", "--side", "8")
QUICK = ("--rounds", "1", "--warm-up", "0")


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(memory_bench, "STEPS", 2)
    monkeypatch.setattr(floor_bench, "_fastest", lambda work, device: 0.001)


def call(command, *arguments):
    result = CliRunner().invoke(app, [command, "--device", "cpu", "--threads", "1", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


def test_a_step_is_told_beside_the_references_and_written(tmp_path):
    path = tmp_path / "deep" / "step.json"
    lines = call("step", *TINY, *QUICK, "--methods", "tent", "--out", str(path)).splitlines()
    assert "wrn_10_1, batch 4" in lines
    assert [line.split("  ")[0] for line in lines[2:5]] == ["forward only", "plain TENT", "plain LAW"]
    record = json.loads(path.read_text())
    assert record["bench"] == "step"
    assert record["command"].startswith("driftlaw")


def test_a_variant_of_the_users_own_is_measured_too():
    document = json.loads(
        call("step", *TINY, *QUICK, "--methods", "norm", "--no-memory", "--variant", "mine: law tau=0.5", "--json")
    )
    assert document["rows"][-1]["label"] == "mine"
    assert document["rows"][-1]["settings"] == {"tau": 0.5}
    assert "peak_bytes" not in document["rows"][-1]


def test_only_the_variants_asked_for_are_measured():
    document = json.loads(call("memory", *TINY, "--only", "plain TENT", "--only", "norm", "--json"))
    assert [row["label"] for row in document["rows"]] == ["plain TENT", "norm"]
    assert document["rows"][0]["share_of_plain_law"] is None


def test_memory_is_told_as_a_share_of_the_plain_law():
    line = next(
        line for line in call("memory", *TINY, "--methods", "tent").splitlines() if line.startswith("plain LAW")
    )
    assert "1.00" in line


def test_the_cost_of_facts_is_told_in_per_cent():
    printed = call("facts", *TINY, *QUICK, "--methods", "autorgn")
    assert "autorgn" in printed
    assert "%" in printed


def test_the_floor_says_what_binds_it():
    printed = call("floor", *TINY, *QUICK, "--methods", "tent")
    assert "× the floor" in printed
    assert "GB a second" in printed


def test_scaling_prints_a_table_an_axis_and_a_line_a_stream():
    printed = call(
        *("scaling", "--axes", "batch_size,stream", "--model", "wrn_10_1", "--batch-sizes", "2", "--side", "8"),
        *("--batch-size", "4", "--batches", "4", "--windows", "2", "--methods", "tent", *QUICK),
    )
    assert "batch size: ms a step and peak MB (network wrn_10_1)" in printed
    assert "along a stream" in printed


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--methods", "lav"), "Did you mean 'law'"),
        (("--batch-sizes", "many"), "whole numbers"),
        (("--only", "plain LAV"), "Did you mean 'plain LAW'"),
        (("--variant", "c: law compield=true", "--only", "c"), "nothing can be measured here"),
        (("--rounds", "0"), "--rounds is 0"),
        (("--models", "wrn_11_1"), "depth must be"),
        (("--weights", "wrn_16_1-cifar10"), "not measured"),
    ],
)
def test_wrong_use_is_told_before_anything_is_measured(arguments, told):
    with pytest.raises(UsageError, match=told):
        call("step", *TINY, *arguments)


def test_labels_that_hold_commas_are_told_apart():
    with pytest.raises(UsageError) as told:
        call("step", *TINY, "--methods", "law", "--only", "law float32")
    listed = str(told.value).partition("Valid labels: ")[2]
    assert listed == "«forward only», «plain TENT», «plain LAW», «law, float32», «law», «law, fast»"
    assert "Did you mean 'law, float32'?" in str(told.value)


def test_help_shows_examples():
    for command in ("step", "memory", "facts", "floor", "scaling"):
        assert "driftlaw bench" in CliRunner().invoke(app, [command, "--help"]).stdout
