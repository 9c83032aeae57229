"""Tests of tools.convert_records."""

import gzip
import json

from driftlaw.records import dump_line, read_record
from driftlaw.records.tuning_file import TUNING_FORMAT
from tests.reports.example_records import make_record
from tools.convert_records import convert_bench, convert_file, convert_run, convert_tuning


def old_lines(commit):
    record = make_record("law")
    header = {name: value for name, value in record.header.items() if name != "execution"}
    return [header | {"commit": commit}, *record.batches, record.closing]


def test_execution_is_added_after_the_settings():
    converted = convert_run(old_lines("f787e55"))
    names = list(converted[0])
    assert names[names.index("settings") + 1] == "execution"
    assert converted[0]["execution"]["precision"] == "bf16"
    assert converted[1:] == old_lines("f787e55")[1:]


def test_execution_of_other_commits_stays_unknown():
    assert convert_run(old_lines("1234567")) == old_lines("1234567")


def test_files_are_converted_once_with_the_same_bytes(tmp_path):
    paths = [tmp_path / "a.jsonl.gz", tmp_path / "b.jsonl.gz"]
    for path in paths:
        path.write_bytes(gzip.compress(b"".join(map(dump_line, old_lines("3bc1f3d")))))
    assert all(convert_file(path) for path in paths)
    assert not any(convert_file(path) for path in paths)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert read_record(paths[0]).execution["precision"] == "float32"


def test_tuning_file_says_how_its_choice_was_made(tmp_path):
    path = tmp_path / "tuning.json"
    path.write_text(json.dumps({"format": TUNING_FORMAT, "search": "coordinate", "grid": {}}))
    assert convert_file(path)
    assert list(json.loads(path.read_text())) == ["format", "search", "choose", "grid"]
    assert convert_tuning({"choose": "gentlest"}) == {"choose": "gentlest"}


def test_benchmark_labels_command_and_device():
    record = {
        "command": "driftlaw bench floor --only 'plain LAW' --out /home/me/out/floor.json",
        "device": "NVIDIA H200",
        "threads": 2,
        "rows": [{"label": "plain LAW", "method": "plain_law"}, {"variant": "without a label"}],
    }
    converted = convert_bench(record)
    assert converted["command"] == "python -m benchmarks roofline --only 'naive LAW' --out floor.json"
    assert converted["device"] == {"type": "cuda", "name": "NVIDIA H200", "threads": 2}
    assert converted["rows"] == [{"label": "naive LAW", "method": "plain_law"}, {"variant": "without a label"}]
    assert convert_bench(converted) == converted
