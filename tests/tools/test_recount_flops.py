"""The tool that counts the operations of old records anew."""

import gzip
import importlib.util
import json
from pathlib import Path

import pytest

import driftlaw
from driftlaw.records import read_record

TOOL = Path(__file__).resolve().parents[2] / "tools" / "recount_flops.py"


def load_tool():
    spec = importlib.util.spec_from_file_location("recount_flops", TOOL)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


def test_a_wrong_count_is_put_right_once_and_kept_beside(tmp_path):
    stream = driftlaw.make_stream("embedded", limit=8, batch_size=8, corruptions=["fog"])
    plain = tmp_path / "run.jsonl"
    right = driftlaw.run(stream, driftlaw.adapt(driftlaw.load_model("wrn_16_1-cifar10")), record=plain).closing["cost"]
    lines = [json.loads(line) for line in plain.read_text().splitlines()]
    wrong = right | {"step_flops_per_image": 3 * right["step_flops_per_image"]}
    for line in lines[1:]:
        line["cost"] = wrong
    packed = tmp_path / "run.jsonl.gz"
    packed.write_bytes(gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode()))

    tool = load_tool()
    assert tool.recount(packed, None)
    record = read_record(packed)
    assert record.closing["cost"] == record.batches[0]["cost"] == right
    assert record.closing["counted_first"] == wrong
    assert record.closing["mean_error"] == lines[-1]["mean_error"]
    assert not tool.recount(packed, None)
    assert not tool.recount(plain, None)


def test_what_cannot_be_counted_is_told_and_the_record_stays(tmp_path, monkeypatch, capsys):
    path = tmp_path / "run.jsonl"
    path.write_text("no record\n")
    monkeypatch.setattr("sys.argv", ["recount_flops.py", str(path)])
    with pytest.raises(SystemExit) as stopped:
        load_tool().main()
    assert "run.jsonl" in str(stopped.value)
    assert path.read_text() == "no record\n"
