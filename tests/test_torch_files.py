"""Files of tensors are read without running code; cached results are computed once and read afterwards."""

import os
import traceback

import pytest
import torch
from torch import nn

from driftlaw.checkpoints import load_checkpoint
from driftlaw.errors import DataError, DriftlawWarning
from driftlaw.export.state import read_state
from driftlaw.models import load_model
from driftlaw.torch_files import cache_dir, cached, read_torch_file


class Trap:
    """A pickle that would write a file when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def write_trap(path):
    torch.save({"state_dict": Trap(path.with_name("trapped"))}, path)


def write_module(path):
    torch.save(nn.Linear(2, 2), path)


def write_script(path):
    torch.jit.script(nn.Linear(2, 2)).save(path)


BAD = {
    "code": (write_trap, r"contains Python objects \(\w+\.open\), which can run code"),
    "module": (write_module, r"contains Python objects \(torch\.nn\.modules\.linear\.Linear\)"),
    "script": (write_script, "is a TorchScript archive"),
    "text": (lambda path: path.write_text("<html></html>"), "is damaged or was not written by torch.save"),
    "empty": (lambda path: path.write_bytes(b""), "is damaged or was not written by torch.save"),
    "pipe": (os.mkfifo, "is not a regular file"),
    "missing": (lambda path: None, "cannot be read as a torch file: No such file"),
}


@pytest.mark.filterwarnings("ignore:'torch.load' received a zip file:UserWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("case", BAD)
def test_unreadable_files_give_our_own_error(tmp_path, case):
    write, message = BAD[case]
    path = tmp_path / "file.pt"
    write(path)
    with pytest.raises(DataError, match=message) as caught:
        read_torch_file(path)
    shown = "".join(traceback.format_exception(caught.value))
    assert "weights_only" not in shown.replace("weights_only=True", "")
    assert "trust" not in shown
    assert "file.pt" in str(caught.value)
    assert not (tmp_path / "trapped").exists()


@pytest.mark.parametrize("read", [load_model, read_state, lambda path: load_checkpoint(path, torch.device("cpu"))])
def test_no_reader_of_checkpoints_repeats_the_advice_of_torch(tmp_path, read):
    path = tmp_path / "file.pt"
    write_trap(path)
    with pytest.raises(DataError, match="contains Python objects") as caught:
        read(path)
    assert "weights_only" not in str(caught.value)
    assert "weights_only=False" not in "".join(traceback.format_exception(caught.value))


def test_a_cache_file_with_code_is_computed_again(tmp_path):
    write_trap(tmp_path / f"means-{'0' * 32}.pt")
    with pytest.warns(DriftlawWarning, match="contains Python objects") as warned:
        assert cached("means", "0" * 32, lambda: {"a": 1}, folder=tmp_path) == {"a": 1}
    assert "weights_only" not in str(warned[0].message)
    assert not (tmp_path / "trapped").exists()


def test_tensors_and_plain_data_are_read(tmp_path):
    torch.save({"a": torch.ones(2), "b": [1, "x"]}, tmp_path / "file.pt")
    assert read_torch_file(tmp_path / "file.pt")["b"] == [1, "x"]


class CountedComputation:
    """Returns a result and counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self):
        self.calls += 1
        return {"means": torch.arange(3.0), "moments": {0: {"step": torch.tensor(2.0)}}}


def test_a_result_is_computed_once_and_read_afterwards(tmp_path):
    compute = CountedComputation()
    computed, read = (cached("means", "a" * 64, compute, folder=tmp_path) for _ in range(2))
    assert compute.calls == 1
    assert torch.equal(computed["means"], read["means"])
    assert torch.equal(computed["moments"][0]["step"], read["moments"][0]["step"])


def test_another_key_or_name_is_another_result(tmp_path):
    compute = CountedComputation()
    for name, key in (("means", "a" * 64), ("means", "b" * 64), ("other", "a" * 64)):
        cached(name, key, compute, folder=tmp_path)
    assert compute.calls == 3


def test_the_default_folder_is_in_the_data_directory():
    cached("means", "a" * 64, CountedComputation())
    assert [path.name for path in cache_dir().iterdir()] == [f"means-{'a' * 32}.pt"]


def test_a_damaged_file_is_computed_again(tmp_path):
    compute = CountedComputation()
    cached("means", "a" * 64, compute, folder=tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:100])
    with pytest.warns(UserWarning, match="damaged"):
        cached("means", "a" * 64, compute, folder=tmp_path)
    cached("means", "a" * 64, compute, folder=tmp_path)
    assert compute.calls == 2


def test_a_folder_that_is_not_writable_is_a_warning(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.warns(UserWarning, match="not stored in the cache"):
        result = cached("means", "a" * 64, CountedComputation(), folder=tmp_path / "file")
    assert torch.equal(result["means"], torch.arange(3.0))


def test_a_failed_computation_leaves_no_file(tmp_path):
    def fail():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached("means", "a" * 64, fail, folder=tmp_path)
    assert list(tmp_path.iterdir()) == []
