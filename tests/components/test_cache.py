"""What was made once is read the next time, and nothing wrong ever is."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from driftlaw.components.cache import cache_dir, cached, fingerprint


class Maker:
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self):
        self.asked += 1
        return {"means": torch.arange(3.0), "moments": {0: {"step": torch.tensor(2.0)}}}


def test_it_is_made_once_and_read_afterwards(tmp_path):
    make = Maker()
    made, read = (cached("means", "a" * 64, make, folder=tmp_path) for _ in range(2))
    assert make.asked == 1
    assert torch.equal(made["means"], read["means"])
    assert torch.equal(made["moments"][0]["step"], read["moments"][0]["step"])


def test_another_key_or_name_is_another_thing(tmp_path):
    make = Maker()
    for name, key in (("means", "a" * 64), ("means", "b" * 64), ("other", "a" * 64)):
        cached(name, key, make, folder=tmp_path)
    assert make.asked == 3


def test_it_lies_in_the_data_folder_unless_told():
    cached("means", "a" * 64, Maker())
    assert [path.name for path in cache_dir().iterdir()] == [f"means-{'a' * 32}.pt"]


def test_a_damaged_file_is_made_anew(tmp_path):
    make = Maker()
    cached("means", "a" * 64, make, folder=tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:100])
    with pytest.warns(UserWarning, match="damaged"):
        cached("means", "a" * 64, make, folder=tmp_path)
    cached("means", "a" * 64, make, folder=tmp_path)
    assert make.asked == 2


def test_a_folder_that_cannot_be_written_costs_the_keeping_alone(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.warns(UserWarning, match="not kept"):
        made = cached("means", "a" * 64, Maker(), folder=tmp_path / "file")
    assert torch.equal(made["means"], torch.arange(3.0))


def test_a_failure_leaves_nothing_behind(tmp_path):
    def fail():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached("means", "a" * 64, fail, folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_fingerprint_tells_weights_and_settings_apart():
    layer = nn.Linear(2, 2)
    first = fingerprint("warm-up", layer, {"seed": 0, "rate": 1e-3})
    assert first == fingerprint("warm-up", layer, {"rate": 1e-3, "seed": 0})
    assert first != fingerprint("warm-up", layer, {"seed": 1, "rate": 1e-3})
    with torch.no_grad():
        layer.bias += 1e-3
    assert first != fingerprint("warm-up", layer, {"seed": 0, "rate": 1e-3})
