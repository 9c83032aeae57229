"""Methods are found by class, name or file; anything else is a UsageError."""

import sys

import pytest

from driftlaw.base import Adapter, registered_methods
from driftlaw.errors import UsageError
from driftlaw.testing import check_method, find_method

METHOD = '''
"""A user's method."""

from __future__ import annotations

import torch
from driftlaw.base import Adapter, Plan, StepOutput
from driftlaw.settings import Settings


class Mine(Adapter, name="mine"):
    """Returns the logits of the model."""

    title = "Mine"

    class Config(Settings):
        """Settings."""

        patience: int = 3

    def update(self, images: torch.Tensor, plan: Plan) -> StepOutput:
        """Return the logits."""
        return StepOutput(self.model(images))
'''


def write_file(folder, text, name="mine.py"):
    path = folder / name
    path.write_text(text)
    return path


def test_registered_name_is_found():
    assert find_method("law") is registered_methods()["law"]


def test_unknown_name_suggests_the_closest():
    with pytest.raises(UsageError, match="Did you mean 'tent'"):
        find_method("tente")


def test_file_is_found_by_str_and_by_path(tmp_path):
    path = write_file(tmp_path, METHOD)
    for form in (path, str(path)):
        kind = find_method(form)
        assert kind.name == "mine"
        assert kind.Config().patience == 3
    assert str(tmp_path) not in sys.path


def test_file_may_import_its_neighbours(tmp_path):
    write_file(tmp_path, "TITLE = 'from a neighbour'\n", "neighbour_of_mine.py")
    text = METHOD.replace("import torch\n", "import torch\nfrom neighbour_of_mine import TITLE\n", 1)
    assert find_method(write_file(tmp_path, text.replace('"Mine"', "TITLE"))).title == "from a neighbour"


def test_method_in_a_file_can_be_checked(tmp_path):
    assert all(result.passed for result in check_method(write_file(tmp_path, METHOD), {"patience": 5}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n", "does not define a method. Expected `class MyMethod"),
        (
            METHOD
            + METHOD.replace("mine", "other")
            .replace("Mine", "Other")
            .replace("from __future__ import annotations", ""),
            r"several methods\. Choose one of them: .*mine\.py:Mine or .*mine\.py:Other",
        ),
        ("class Broken(\n", "cannot be imported: line 1: .*never closed"),
        ("\nimport no_such_thing\n", "line 2: ModuleNotFoundError: No module named 'no_such_thing'"),
        ("\n\n1 / 0\n", "line 3: ZeroDivisionError"),
        (METHOD.replace(', name="mine"', ""), "Mine has no name"),
        (METHOD.replace("def update", "def updat"), "Mine does not implement: update"),
        ("from driftlaw.methods.law import Law\n", "does not define a method"),
    ],
)
def test_file_without_exactly_one_method_is_rejected(tmp_path, text, message):
    with pytest.raises(UsageError, match=message):
        find_method(write_file(tmp_path, text))


def test_class_of_a_file_is_found_by_name(tmp_path):
    other = METHOD.replace("mine", "other").replace("Mine", "Other").replace("from __future__ import annotations", "")
    path = write_file(tmp_path, METHOD + other)
    assert find_method(f"{path}:Other").name == "other"
    with pytest.raises(UsageError, match=r"has no class 'Others'\. It defines: Mine, Other"):
        find_method(f"{path}:Others")
    with pytest.raises(UsageError, match="OrderedDict is not a method"):
        find_method(f"{write_file(tmp_path, 'from collections import OrderedDict', 'no.py')}:OrderedDict")


def test_failed_import_leaves_no_module(tmp_path):
    before = set(sys.modules)
    with pytest.raises(UsageError):
        find_method(write_file(tmp_path, "1 / 0\n"))
    assert set(sys.modules) == before


def test_missing_file_and_folder_are_rejected(tmp_path):
    with pytest.raises(UsageError, match=r"missing\.py is not a file"):
        find_method(tmp_path / "missing.py")
    with pytest.raises(UsageError, match="is not a file"):
        find_method(tmp_path)


def test_file_name_must_end_in_py(tmp_path):
    with pytest.raises(UsageError, match=r"must end in \.py"):
        find_method(write_file(tmp_path, METHOD, "mine.txt"))


def test_class_that_is_not_a_method_is_rejected():
    with pytest.raises(UsageError, match="int is not a method"):
        find_method(int)
    with pytest.raises(UsageError, match="Adapter has no name"):
        find_method(Adapter)
