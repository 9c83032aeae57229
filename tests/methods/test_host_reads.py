"""Steps without host values in their plan read nothing back to the host, so that they can be captured on a GPU."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import driftlaw
from tests.methods.images import batches

READS = {"_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal", "unique_dim", "_unique2"}


class RecordReads(TorchDispatchMode):
    """Records the operations that make the host wait for a GPU, or whose result has a size that depends on the data."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        by_mask = name == "index" and any(each is not None and each.dtype == torch.bool for each in args[1])
        if name in READS or by_mask:
            self.found.append(name)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("palm", {"weight_decay": 1e-4}),
        ("sar", {"reset_threshold": 0.3}),
        ("lame", {}),
        ("lame", {"affinity": "knn"}),
        ("law_plus", {}),
        ("law_plus", {"loss": "entropy", "symmetric": True, "weighting": False}),
    ],
    ids=str,
)
def test_update_reads_no_value_back(confident_network, method, settings):
    adapter = driftlaw.adapt(confident_network, method, **settings)
    for images in batches(3):
        plan = adapter.draw(images)
        assert plan.host is None
        with RecordReads() as reads:
            adapter.update(images, plan)
        assert reads.found == []


def test_reads_are_found():
    with RecordReads() as reads:
        float(torch.ones(1).sum())
        torch.ones(3)[torch.tensor([True, False, True])]
    assert reads.found == ["_local_scalar_dense", "index"]
