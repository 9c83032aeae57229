"""Names, classes and files are found; what is no method is refused in words."""

import sys

import pytest

from driftlaw.base import Adapter, registered_methods
from driftlaw.errors import UsageError
from driftlaw.methods import list_methods
from driftlaw.testing import check_method, find_method

METHOD = '''
"""A method of one's own."""

from __future__ import annotations

import torch
from driftlaw.base import Adapter, Plan, StepOutput
from driftlaw.settings import Settings


class Mine(Adapter, name="mine"):
    """Answers, and waits."""

    title = "Mine"

    class Config(Settings):
        """Settings."""

        patience: int = 3

    def update(self, images: torch.Tensor, plan: Plan) -> StepOutput:
        """Answer."""
        return StepOutput(self.model(images))
'''


@pytest.fixture(autouse=True)
def _registry_as_it_was():
    list_methods()
    before = dict(registered_methods())
    yield
    registered_methods().clear()
    registered_methods().update(before)


def written(folder, text, name="mine.py"):
    path = folder / name
    path.write_text(text)
    return path


def test_a_registered_name_is_found():
    assert find_method("law") is registered_methods()["law"]


def test_an_unknown_name_gets_the_nearest_one():
    with pytest.raises(UsageError, match="Did you mean 'tent'"):
        find_method("tente")


def test_a_file_is_found_by_text_and_by_path(tmp_path):
    path = written(tmp_path, METHOD)
    for form in (path, str(path)):
        kind = find_method(form)
        assert kind.name == "mine"
        assert kind.Config().patience == 3
    assert str(tmp_path) not in sys.path


def test_a_file_beside_it_can_be_imported(tmp_path):
    written(tmp_path, "TITLE = 'from beside'\n", "beside_mine_for_checks.py")
    text = METHOD.replace("import torch\n", "import torch\nfrom beside_mine_for_checks import TITLE\n", 1)
    assert find_method(written(tmp_path, text.replace('"Mine"', "TITLE"))).title == "from beside"


def test_a_file_conforms_or_not(tmp_path):
    assert all(result.passed for result in check_method(written(tmp_path, METHOD), {"patience": 5}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n", "defines no method: expected `class X"),
        (
            METHOD
            + METHOD.replace("mine", "other")
            .replace("Mine", "Other")
            .replace("from __future__ import annotations", ""),
            "several methods .mine, other.",
        ),
        ("class Broken(\n", "cannot be imported: line 1: .*never closed"),
        ("\nimport no_such_thing\n", "line 2: ModuleNotFoundError: No module named 'no_such_thing'"),
        ("\n\n1 / 0\n", "line 3: ZeroDivisionError"),
        (METHOD.replace(', name="mine"', ""), "Mine has no name"),
        (METHOD.replace("def update", "def updat"), "Mine leaves out what a method must write: update"),
        ("from driftlaw.methods.law import Law\n", "defines no method"),
    ],
)
def test_a_file_that_is_no_method_is_refused_in_words(tmp_path, text, message):
    with pytest.raises(UsageError, match=message):
        find_method(written(tmp_path, text))


def test_a_failed_import_leaves_no_module_behind(tmp_path):
    before = set(sys.modules)
    with pytest.raises(UsageError):
        find_method(written(tmp_path, "1 / 0\n"))
    assert set(sys.modules) == before


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    with pytest.raises(UsageError, match=r"no file at .*missing\.py"):
        find_method(tmp_path / "missing.py")
    with pytest.raises(UsageError, match="no file at"):
        find_method(tmp_path)


def test_a_file_without_py_at_its_end_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"ends in \.py"):
        find_method(written(tmp_path, METHOD, "mine.txt"))


def test_a_class_that_is_no_method_is_refused():
    with pytest.raises(UsageError, match="int is no method"):
        find_method(int)
    with pytest.raises(UsageError, match="Adapter has no name"):
        find_method(Adapter)
