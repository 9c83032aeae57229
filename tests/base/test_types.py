"""Types that packages exchange."""

import dataclasses

import pytest
import torch

from driftlaw.base import (
    Batch,
    Domain,
    StepOutput,
    Stream,
)
from driftlaw.testing.fixtures import make_images


def test_types_are_frozen():
    for thing in (Domain("fog", 5), StepOutput(torch.zeros(1, 2)), Batch(make_images(), None, Domain("fog"), 0, True)):
        with pytest.raises(dataclasses.FrozenInstanceError):
            thing.extra = 1


def test_iter_from_skips_batches():
    class Counted(Stream):
        num_classes = 2

        def __iter__(self):
            return (Batch(make_images(n), None, Domain("fog"), n, n == 0) for n in range(4))

        def __len__(self):
            return 4

        def recipe(self):
            return {}

    assert [batch.index for batch in Counted().iter_from(2)] == [2, 3]
