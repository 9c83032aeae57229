"""Tests of tools.results.tuning_summary."""

import json

import pytest

from driftlaw.errors import DataError
from driftlaw.records.tuning_file import TUNING_FORMAT
from tools.results.tuning_summary import describe_tuning


def write(folder, *tried, chosen, name="cifar10-c"):
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "format": TUNING_FORMAT,
        "preset": name,
        "method": "law",
        "chosen": {"tau": chosen},
        "choose": "lowest",
        "at_the_edge": [],
        "trials": [{"tried": {"tau": tau}} for tau in tried],
    }
    (folder / f"{name}.json").write_text(json.dumps(document), encoding="utf-8")


def test_choice_links_to_its_file(tmp_path):
    folder = tmp_path / "results" / "tuning"
    write(folder, 1.0, 0.8, chosen=0.8)
    (text,) = describe_tuning(tmp_path, folder)
    assert "of 2 trials, tau 0.8 had the lowest error (different from the preset)" in text
    assert "(results/tuning/cifar10-c.json)" in text


def test_choice_shows_its_command(tmp_path):
    write(tmp_path, 1.0, 0.8, chosen=0.8)
    path = tmp_path / "cifar10-c.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(document | {"command": "driftlaw tune cifar10-c --out /tmp/runs"}), encoding="utf-8")
    (text,) = describe_tuning(tmp_path, tmp_path)
    assert text.endswith("([all trials](cifar10-c.json), `driftlaw tune cifar10-c`).")


def test_choice_of_the_presets_values(tmp_path):
    write(tmp_path, 1.0, 0.8, chosen=1.0)
    assert "the preset's own values" in describe_tuning(tmp_path, tmp_path)[0]


def test_gentlest_choice_counts_tied_trials(tmp_path):
    write(tmp_path, 1.0, 0.8, chosen=0.8)
    path = tmp_path / "cifar10-c.json"
    document = json.loads(path.read_text(encoding="utf-8")) | {"choose": "gentlest"}
    for trial, tied in zip(document["trials"], (True, True), strict=True):
        trial["tied"] = tied
    path.write_text(json.dumps(document), encoding="utf-8")
    (text,) = describe_tuning(tmp_path, tmp_path)
    assert "tau 0.8 had the smallest learning rate of 2 trials whose errors do not differ significantly" in text


def test_settings_may_be_of_any_type(tmp_path):
    write(tmp_path, "tensor", True, chosen="tensor")
    assert "of 2 trials, tau tensor had the lowest error" in describe_tuning(tmp_path, tmp_path)[0]


def test_one_line_per_file_sorted_by_name(tmp_path):
    write(tmp_path, 1.0, chosen=1.0, name="b")
    write(tmp_path, 1.0, chosen=1.0, name="a")
    (text,) = describe_tuning(tmp_path, tmp_path)
    assert [line[:4] for line in text.splitlines()] == ["- a,", "- b,"]


def test_other_files_are_ignored(tmp_path):
    (tmp_path / "step.json").write_text('{"bench": "step"}', encoding="utf-8")
    assert describe_tuning(tmp_path, tmp_path) == []


@pytest.mark.parametrize("text", ["{", "[]", f'{{"format": "{TUNING_FORMAT}"}}'])
def test_damaged_file_is_reported(tmp_path, text):
    (tmp_path / "broken.json").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"broken\.json is not a valid tuning file"):
        describe_tuning(tmp_path, tmp_path)
