"""Tests of the commands ``step``, ``memory``, ``diagnostics``, ``roofline`` and ``scaling`` on a tiny model."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from benchmarks import memory as memory_bench
from benchmarks import roofline as roofline_bench
from benchmarks.__main__ import app
from driftlaw.errors import UsageError

TINY = ("--models", "wrn_10_1", "--batch-sizes", "4", "--side", "8")
QUICK = ("--rounds", "1", "--warm-up", "0")


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(memory_bench, "STEPS", 2)
    monkeypatch.setattr(roofline_bench, "_fastest", lambda work, device: 0.001)


def call(command, *arguments):
    result = CliRunner().invoke(app, [command, "--device", "cpu", "--threads", "1", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


def test_step_prints_a_table_and_writes_the_record(tmp_path):
    path = tmp_path / "new" / "step.json"
    lines = call("step", *TINY, *QUICK, "--methods", "tent", "--out", str(path)).splitlines()
    assert "wrn_10_1, batch size 4" in lines
    assert [line.split("  ")[0] for line in lines[2:5]] == ["forward only", "naive TENT", "naive LAW"]
    record = json.loads(path.read_text())
    assert record["bench"] == "step"
    assert record["command"].startswith("python -m benchmarks")


def test_further_variant_is_measured():
    document = json.loads(
        call("step", *TINY, *QUICK, "--methods", "norm", "--no-memory", "--variant", "mine: law tau=0.5", "--json")
    )
    assert document["rows"][-1]["label"] == "mine"
    assert document["rows"][-1]["settings"] == {"tau": 0.5}
    assert "peak_bytes" not in document["rows"][-1]


def test_only_selects_variants():
    images = ("--models", "fpn_wrn_10_1", "--batch-sizes", "2", "--side", "8,12")
    document = json.loads(call("memory", *images, "--only", "naive TENT", "--only", "norm", "--json"))
    assert [row["label"] for row in document["rows"]] == ["naive TENT", "norm"]
    assert document["rows"][0]["share_of_plain_law"] is None


def test_memory_is_a_fraction_of_naive_law():
    lines = call("memory", *TINY, "--methods", "tent").splitlines()
    assert "1.00" in next(line for line in lines if line.startswith("naive LAW"))


def test_diagnostics_prints_the_overhead_in_per_cent():
    printed = call("diagnostics", *TINY, *QUICK, "--methods", "autorgn")
    assert "autorgn" in printed
    assert "%" in printed


def test_roofline_prints_the_ratio_and_the_rates():
    printed = call("roofline", *TINY, *QUICK, "--methods", "tent")
    assert "measured / limit" in printed
    assert "GB/s" in printed


def test_scaling_prints_a_table_per_axis_and_one_for_the_stream():
    printed = call(
        *("scaling", "--axes", "batch_size,stream", "--model", "wrn_10_1", "--batch-sizes", "2", "--side", "8"),
        *("--batch-size", "4", "--batches", "4", "--windows", "2", "--methods", "tent", *QUICK),
    )
    assert "batch size: ms/step and peak MB (model wrn_10_1)" in printed
    assert "along a stream" in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--methods", "lav"), "Did you mean 'law'"),
        (("--batch-sizes", "many"), "comma-separated positive integers"),
        (("--only", "naive LAV"), "Did you mean 'naive LAW'"),
        (("--variant", "c: law compield=true", "--only", "c"), "None of the variants can be measured"),
        (("--rounds", "0"), "--rounds is 0"),
        (("--weights", "wrn_16_1-cifar10"), "not measured"),
    ],
)
def test_wrong_options_are_refused_before_measuring(arguments, message):
    with pytest.raises(UsageError, match=message):
        call("step", *TINY, *arguments)


def test_labels_with_commas_are_quoted():
    with pytest.raises(UsageError) as caught:
        call("step", *TINY, "--methods", "law", "--only", "law float32")
    listed = str(caught.value).partition("Valid labels: ")[2]
    assert listed == "'forward only', 'naive TENT', 'naive LAW', 'law, float32', 'law', 'law, fast'."
    assert "Did you mean 'law, float32'?" in str(caught.value)


def test_help_has_examples():
    for command in (
        "step",
        "memory",
        "diagnostics",
        "roofline",
        "scaling",
        "corruptions",
        "errors",
        "compare",
        "report",
    ):
        assert "python -m benchmarks" in CliRunner().invoke(app, [command, "--help"]).stdout
