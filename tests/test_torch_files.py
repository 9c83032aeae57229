"""Files of tensors are read without running code, and errors never advise to run it."""

import os
import traceback

import pytest
import torch
from torch import nn

from driftlaw.checkpoints import load_checkpoint
from driftlaw.components.cache import cached
from driftlaw.errors import DataError, DriftlawWarning
from driftlaw.export.state import read_state
from driftlaw.models import load_model
from driftlaw.torch_files import read_torch_file


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
