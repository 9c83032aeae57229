"""Small labelled stream of noise, and reading of a record without its timing fields."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from driftlaw import evaluation
from driftlaw.base import Batch, Domain, Stream

METRICS = tuple(name for name in evaluation.METRICS if name != "frames")  # which needs label maps


class NoiseStream(Stream):
    """Three domains of noise with random labels, of one batch of 6 and one batch of 4 images each."""

    num_classes = 4

    def __init__(self, *, labelled: bool = True, seed: int = 0) -> None:
        self.labelled, self.seed = labelled, seed

    def __iter__(self) -> Iterator[Batch]:
        generator = torch.Generator().manual_seed(self.seed)
        for index in range(len(self)):
            count = 6 if index % 2 == 0 else 4
            images = torch.rand(count, 3, 16, 16, generator=generator)
            labels = torch.randint(4, (count,), generator=generator) if self.labelled else None
            yield Batch(images, labels, Domain("abc"[index // 2], 5), index, starts_domain=index % 2 == 0)

    def __len__(self) -> int:
        return 6

    def recipe(self) -> dict[str, Any]:
        return {"kind": "noise", "seed": self.seed}

    def clean(self, limit: int) -> list[Batch]:
        generator = torch.Generator().manual_seed(9)
        images, labels = torch.rand(8, 3, 16, 16, generator=generator), torch.arange(8) % 4
        return [Batch(images, labels, Domain("clean"), 0, starts_domain=True)]


def lines_without_timing(path: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    return [{key: value for key, value in line.items() if key != "timing"} for line in lines]
