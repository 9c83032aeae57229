"""Cached results are computed once and read afterwards; damaged files are never used."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from driftlaw.components.cache import cache_dir, cached, fingerprint


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


def test_fingerprints_differ_for_other_weights_and_settings():
    layer = nn.Linear(2, 2)
    first = fingerprint("warm-up", layer, {"seed": 0, "rate": 1e-3})
    assert first == fingerprint("warm-up", layer, {"rate": 1e-3, "seed": 0})
    assert first != fingerprint("warm-up", layer, {"seed": 1, "rate": 1e-3})
    with torch.no_grad():
        layer.bias += 1e-3
    assert first != fingerprint("warm-up", layer, {"seed": 0, "rate": 1e-3})
