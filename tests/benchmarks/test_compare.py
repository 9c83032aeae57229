"""Tests of benchmarks.compare: this checkout is compared with itself on a tiny model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from benchmarks.__main__ import app, repeat_options
from benchmarks.compare import OTHER, ROOT, THIS, Checkout, parse_target
from driftlaw.errors import DataError, UsageError

TINY = ["--models", "wrn_10_1", "--batch-size", "4", "--side", "8", "--device", "cpu", "--threads", "1"]


def test_checkout_compared_with_itself(tmp_path):
    out = tmp_path / "compare.json"
    arguments = ["--other", str(ROOT), "--targets", "tent", "--targets", "law tau=0.6", "--rounds", "2"]
    before = torch.get_num_threads()
    try:
        result = CliRunner().invoke(app, ["compare", *arguments, *TINY, "--out", str(out)], catch_exceptions=False)
    finally:
        torch.set_num_threads(before)
    record = json.loads(out.read_text())
    assert [row["target"] for row in record["rows"]] == ["tent", "law tau=0.6"]
    for row in record["rows"]:
        assert row["same_logits"]
        assert set(row["milliseconds"]) == {THIS, OTHER}
        assert all(len(times) == 2 for times in row["milliseconds_by_round"].values())
        medians = [row["milliseconds"][name]["median"] for name in (THIS, OTHER)]
        assert row["ratio"] == pytest.approx(medians[0] / medians[1])
    assert record["rows"][1]["settings"] == {"statistics": "batch", "tau": 0.6, "learning_rate": 1e-6}
    assert str(ROOT) not in json.dumps(record)
    assert "law tau=0.6" in result.stdout


def test_error_of_a_child_is_reported():
    with Checkout(ROOT) as child:
        child.request("start", checkout=str(ROOT), device="cpu", threads=1, deterministic=False)
        with pytest.raises(DataError, match="failed at 'run'"):
            child.request("run", steps=1)  # no adapter was prepared


def test_wrong_use():
    with pytest.raises(UsageError, match="Did you mean 'law'"):
        parse_target("lav fast")
    with pytest.raises(UsageError, match="contains 'quick'"):
        parse_target("law quick")
    with pytest.raises(DataError, match="not a checkout"):
        Checkout(Path(__file__).parent)


def test_options_with_several_values():
    words = ["compare", "--targets", "law", "law fast", "--json", "--models", "a", "b"]
    expected = ["compare", "--targets", "law", "--targets", "law fast", "--json", "--models", "a", "--models", "b"]
    assert repeat_options(words) == expected
