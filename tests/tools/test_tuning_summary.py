"""What ``driftlaw tune`` chose, in words."""

import json

import pytest

from driftlaw.errors import DataError
from tools.results.tuning_summary import TUNING_FORMAT, describe_choices


def write(folder, *tried, chosen, name="cifar10-c"):
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "format": TUNING_FORMAT,
        "preset": name,
        "method": "law",
        "chosen": {"tau": chosen},
        "trials": [{"tried": {"tau": tau}} for tau in tried],
    }
    (folder / f"{name}.json").write_text(json.dumps(document), encoding="utf-8")


def test_a_choice_is_told_with_its_file(tmp_path):
    folder = tmp_path / "results" / "tuning"
    write(folder, 1.0, 0.8, chosen=0.8)
    (told,) = describe_choices(tmp_path, folder)
    assert "of 2 trials tau 0.8 erred least, not the preset's" in told
    assert "(results/tuning/cifar10-c.json)" in told


def test_a_choice_is_told_with_its_command(tmp_path):
    write(tmp_path, 1.0, 0.8, chosen=0.8)
    path = tmp_path / "cifar10-c.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(document | {"command": "driftlaw tune cifar10-c --out /tmp/runs"}), encoding="utf-8")
    (told,) = describe_choices(tmp_path, tmp_path)
    assert told.endswith("([what was tried](cifar10-c.json), by `driftlaw tune cifar10-c`).")


def test_a_choice_of_the_presets_own_values_is_told_as_that(tmp_path):
    write(tmp_path, 1.0, 0.8, chosen=1.0)
    assert "the preset's own" in describe_choices(tmp_path, tmp_path)[0]


def test_a_choice_of_the_gentlest_says_of_how_many(tmp_path):
    write(tmp_path, 1.0, 0.8, chosen=0.8)
    path = tmp_path / "cifar10-c.json"
    document = json.loads(path.read_text(encoding="utf-8")) | {"choose": "gentlest"}
    for trial, tied in zip(document["trials"], (True, True), strict=True):
        trial["tied"] = tied
    path.write_text(json.dumps(document), encoding="utf-8")
    (told,) = describe_choices(tmp_path, tmp_path)
    assert "of 2 trials tau 0.8 was the gentlest of 2 that cannot be told from the lowest, not the preset's" in told


def test_any_setting_may_have_been_tuned(tmp_path):
    write(tmp_path, "tensor", True, chosen="tensor")
    assert "of 2 trials tau tensor erred least" in describe_choices(tmp_path, tmp_path)[0]


def test_every_file_is_a_line_in_the_order_of_names(tmp_path):
    write(tmp_path, 1.0, chosen=1.0, name="b")
    write(tmp_path, 1.0, chosen=1.0, name="a")
    (told,) = describe_choices(tmp_path, tmp_path)
    assert [line[:4] for line in told.splitlines()] == ["- a,", "- b,"]


def test_other_files_say_nothing(tmp_path):
    (tmp_path / "step.json").write_text('{"bench": "step"}', encoding="utf-8")
    assert describe_choices(tmp_path, tmp_path) == []


@pytest.mark.parametrize("text", ["{", "[]", f'{{"format": "{TUNING_FORMAT}"}}'])
def test_a_damaged_file_is_told(tmp_path, text):
    (tmp_path / "broken.json").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"broken\.json is not as `driftlaw tune` writes it"):
        describe_choices(tmp_path, tmp_path)
