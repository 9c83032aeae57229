"""Settings: from TOML, presets and --set."""

import math
import os
from typing import Literal

import numpy as np
import pytest
import torch
from pydantic import Field, PositiveInt, ValidationError, field_validator

import driftlaw
from driftlaw.errors import DataError, UsageError
from driftlaw.settings import (
    Seed,
    Settings,
    check_seed,
    list_presets,
    merge,
    parse,
    parse_assignments,
    read_preset,
    read_toml,
)


class Oven(Settings):
    degrees: float = Field(default=180.0, ge=0)
    mode: Literal["grill", "fan"] = "fan"
    trays: PositiveInt = 1
    dish: str = "pie"

    @field_validator("dish")
    @classmethod
    def _edible(cls, value):
        if value == "stone":
            raise ValueError("Stone is not edible.")
        return value


def test_values_are_typed():
    oven = parse(Oven, {"degrees": "200", "trays": 2}, where="the oven")
    assert (oven.degrees, oven.trays, oven.mode) == (200.0, 2, "fan")


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, "inf", 10**400, True])
def test_numbers_are_finite_and_not_bool(value):
    with pytest.raises(UsageError, match=r"degrees = .*: (Input should be a (finite|valid) number|expected a number)"):
        parse(Oven, {"degrees": value}, where="the oven")


def test_bool_is_no_integer():
    with pytest.raises(UsageError, match="trays = True: expected a number"):
        parse(Oven, {"trays": True}, where="the oven")


def test_huge_values_are_cut_in_messages():
    with pytest.raises(UsageError, match="The seed is a huge number"):
        check_seed(10**5000)
    with pytest.raises(UsageError) as caught:
        parse(Oven, {"mode": "x" * 1000, "degrees": 10**5000}, where="the oven")
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("seed", [0, 3, 2**63 - 1, np.int64(3), np.uint8(3)])
def test_seeds_are_integers_of_python_or_numpy(seed):
    assert check_seed(seed) == seed
    assert type(check_seed(seed)) is int


@pytest.mark.parametrize("seed", [-1, 2**63, True, 1.0, math.nan, "3", None, [1], np.float64(3), np.bool_(1)])
def test_other_seeds_are_refused(seed):
    class Lottery(Settings):
        seed: Seed = 0

    with pytest.raises(UsageError, match=r"^The seed is .*\. Expected an integer from 0 to 2\*\*63 - 1\.$"):
        check_seed(seed)
    with pytest.raises(UsageError, match=r"Expected an integer from 0"):
        parse(Lottery, {"seed": seed}, where="the lottery")


def test_settings_are_frozen():
    with pytest.raises(ValidationError):
        Oven().degrees = 3


def test_parse_reports_all_problems_at_once():
    with pytest.raises(UsageError) as caught:
        parse(Oven, {"degres": 1, "mode": "gril", "trays": 0, "dish": "stone"}, where="the oven")
    message = str(caught.value)
    assert message.startswith("Invalid settings for the oven:")
    assert "Unknown setting 'degres'. Did you mean 'degrees'? Valid settings: degrees, mode, trays, dish." in message
    assert "mode = 'gril'" in message
    assert "'grill' or 'fan'" in message
    assert "trays = 0" in message
    assert "dish = 'stone': Stone is not edible." in message
    assert len(message.splitlines()) == 5


def test_unknown_setting_of_a_group_without_settings():
    with pytest.raises(UsageError, match=r"Unknown setting 'tau'\. Valid settings: none\."):
        parse(Settings, {"tau": 1}, where="method source")


def test_defaults_are_checked_too():
    class Broken(Settings):
        trays: PositiveInt = 0

    with pytest.raises(UsageError, match="trays = 0"):
        parse(Broken, {}, where="the oven")


def test_a_toml_file_is_read(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text('title = "é"\n[stream]\nseverity = 3\n', encoding="utf-8")
    assert read_toml(path) == {"title": "é", "stream": {"severity": 3}}


@pytest.mark.parametrize(
    "content", [b"[stream\n", b"a = \xff\xfe", b"a = " + b"1" * 5000, b"a = " + b"[" * 100_000], ids=range(4)
)
def test_a_broken_toml_file_is_named(tmp_path, content):
    path = tmp_path / "own.toml"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"own\.toml is not valid TOML"):
        read_toml(path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("stream = 3", "stream = 3"),
        ("[[stream]]", r"stream = \[\{\}\]"),
        ("methods = [1]", r"methods = \[1\]"),
        ("[methods]\nlaw = 3", "methods.law = 3"),
        ("step = 'fast'", "step = 'fast'"),
        ("title = 3", "title = 3"),
        ("default_methods = 'law'", "default_methods = 'law'"),
        ("default_methods = [1]", "default_methods.0 = 1"),
        ("model = 3", "model = 3"),
        ("[model]\nweights = 3", "model.weights.str = 3"),
    ],
)
def test_wrong_types_in_a_preset_are_listed(tmp_path, text, problem):
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=rf"own\.toml is not a valid preset:\n  - {problem}: Input should be"):
        read_preset(str(path))
    with pytest.raises(UsageError, match="not a valid preset"):
        driftlaw.adapt(torch.nn.Linear(2, 2), preset=path)


def test_a_preset_is_a_regular_file(tmp_path):
    os.mkfifo(tmp_path / "pipe.toml")
    with pytest.raises(DataError, match=r"pipe\.toml is not a regular file"):
        read_preset(tmp_path / "pipe.toml")


@pytest.mark.parametrize("preset", [5, ["law"], b"fast"])
def test_a_preset_is_named_by_text(preset):
    with pytest.raises(UsageError, match=r"The preset is of type .* Expected a name"):
        read_preset(preset)


def test_toml_syntax_error_names_the_line(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text("a = 1\nb = \n")
    with pytest.raises(UsageError, match="line 2"):
        read_toml(path)


def test_missing_or_unreadable_settings_file_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match=r"Settings file .*none\.toml does not exist"):
        read_preset(str(tmp_path / "none.toml"))
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(UsageError, match=r"Cannot read settings file .*folder\.toml: Is a directory"):
        read_preset(str(tmp_path / "folder.toml"))


def test_every_preset_has_a_title_a_stream_weights_and_methods():
    assert {"embedded", "cifar10-c"} <= set(list_presets())
    for name in set(list_presets()) - {"fast"}:
        preset = read_preset(name)
        assert preset["title"]
        assert preset["stream"]["dataset"]
        assert preset["model"]["weights"]
        assert {"source", "law"} <= set(preset["methods"])


def test_presets_joined_by_plus_are_merged():
    both = read_preset("cifar10-c+fast")
    assert both["methods"]["law"] == read_preset("cifar10-c")["methods"]["law"] | read_preset("fast")["methods"]["law"]
    assert both["methods"]["tent"] == read_preset("cifar10-c")["methods"]["tent"]
    with pytest.raises(UsageError, match=r"Unknown preset 'fst'\. Did you mean 'fast'"):
        read_preset("cifar10-c+fst")


def test_unknown_preset_suggests_the_closest_name():
    with pytest.raises(UsageError, match=r"Unknown preset 'embeded'\. Did you mean 'embedded'"):
        read_preset("embeded")


def test_a_users_own_file_is_a_preset(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("[stream]\nseverity = 2\n")
    assert read_preset(str(path)) == {"stream": {"severity": 2}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.6", 0.6),
        ("1e-3", 1e-3),
        ("3", 3),
        ("true", True),
        ("True", "True"),
        ("[1, 2]", [1, 2]),
        ('["fog", "snow"]', ["fog", "snow"]),
        ('"0.6"', "0.6"),
        ("module", "module"),
        ("a/path with spaces.npy", "a/path with spaces.npy"),
        ("x=y", "x=y"),
        ("", ""),
    ],
)
def test_a_value_is_read_as_toml_else_as_text(text, value):
    result = parse_assignments([f"law.tau={text}"])["law"]["tau"]
    assert result == value
    assert type(result) is type(value)


def test_assignments_become_tables_and_later_ones_win():
    given = ["law.tau=0.5", "stream.severity=3", "law.tau = 0.6", "law.grouping=module", "epochs=3"]
    assert parse_assignments(given) == {
        "law": {"tau": 0.6, "grouping": "module"},
        "stream": {"severity": 3},
        "epochs": 3,
    }


@pytest.mark.parametrize("wrong", ["law.tau", "=3", "law.=3", ".tau=3", "law..tau=3", ""])
def test_invalid_assignment_error_shows_an_example(wrong):
    with pytest.raises(UsageError, match=r"expected key=value, such as law\.tau=0\.6"):
        parse_assignments([wrong])


def test_a_value_cannot_be_a_table_as_well():
    with pytest.raises(UsageError, match="'law' already has a value"):
        parse_assignments(["law=3", "law.tau=0.6"])


def test_merge_replaces_values_and_does_not_modify_its_arguments():
    base, over = {"law": {"tau": 1.0, "grouping": "tensor"}, "a": 1}, {"law": {"tau": 0.6}, "b": {"c": 2}}
    assert merge(base, over) == {"law": {"tau": 0.6, "grouping": "tensor"}, "a": 1, "b": {"c": 2}}
    assert base == {"law": {"tau": 1.0, "grouping": "tensor"}, "a": 1}
    assert over == {"law": {"tau": 0.6}, "b": {"c": 2}}


def test_a_value_replaces_a_table_and_a_table_a_value():
    assert merge({"a": {"b": 1}}, {"a": 2}) == {"a": 2}
    assert merge({"a": 2}, {"a": {"b": 1}}) == {"a": {"b": 1}}


class WithRate(Settings):
    learning_rate: float = 0.1


class WithOwnLr(Settings):
    lr: float = 0.1


def test_lr_is_read_as_learning_rate_unless_it_is_a_setting_itself():
    assert WithRate(lr=0.5).model_dump() == {"learning_rate": 0.5}
    assert WithOwnLr(lr=0.5).model_dump() == {"lr": 0.5}
    with pytest.raises(UsageError, match="lr and learning_rate are the same setting"):
        parse(WithRate, {"lr": 1, "learning_rate": 1}, where="the oven")


def test_merge_lets_the_alias_replace_the_setting_and_the_reverse():
    assert merge({"law": {"learning_rate": 1, "tau": 2}}, {"law": {"lr": 3}}) == {"law": {"lr": 3, "tau": 2}}
    assert merge({"lr": 1}, {"learning_rate": 3}) == {"learning_rate": 3}
    assert merge({"lr": 1}, {"tau": 3}) == {"lr": 1, "tau": 3}
    both = {"lr": 1, "learning_rate": 3}
    assert merge({"lr": 0}, both) == both
