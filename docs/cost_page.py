"""Writes the page that sets the paper's FLOPs column beside what torch's counter sees."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from driftlaw.methods import registered_methods
from driftlaw.models import build_model
from driftlaw.profiling import count_flops

# Network, classes and input side of the paper's three benchmarks.
BENCHMARKS = {
    "CIFAR-10-C": ("wrn_28_10", 10, 32),
    "CIFAR-100-C": ("resnext_29_4x32", 100, 32),
    "ImageNet-C": ("resnet50", 1000, 224),
}
# The last column of the paper's Table 1, in GFLOPs an image, in the order of the benchmarks.
PUBLISHED = {
    "source": (10.5, 2.16, 172.26),
    "norm": (10.5, 2.16, 172.26),
    "tent": (10.5, 2.16, 8.24),
    "cotta": (357.0, 73.34, 280.3),
    "adacontrast": (26.3, 5.4, 20.6),
    "gtta": (42.0, 8.62, 32.98),
    "rmt": (4252.7, 873.72, 1096.44),
    "law": (42.0, 8.62, 32.98),
}
AGREES = 0.02
REMARKS = {
    "source": "On ImageNet-C the paper's figure is 21 passes for one; its own figure for TENT, also one pass, is 8.24.",
    "norm": "As for the source on ImageNet-C.",
    "adacontrast": "The paper's figure is two and a half passes; a step makes five: the weak view through both "
    "networks, a strong view through each, and the answer after the update.",
    "law": "The paper's figure is four passes. A step needs two, since one pass of the batch serves score, loss and "
    "answer; the released code makes more of them.",
    "rmt": "The paper's figure is some 400 passes on CIFAR and 134 on ImageNet. No step of the method makes so many, "
    "and the paper does not say what was counted.",
}


def forward_gflops() -> dict[str, float]:
    """Return what one forward pass of an image costs on each benchmark, 2 operations a multiply-add."""
    costs = {}
    for benchmark, (name, classes, side) in BENCHMARKS.items():
        with torch.device("meta"):
            model = build_model(name, num_classes=classes).eval()
            _, flops = count_flops(lambda: model(torch.empty(1, 3, side, side)))  # noqa: B023 - called at once
        costs[benchmark] = flops / 1e9
    return costs


def cost_page() -> str:
    """Return the page: for each benchmark, a row a method."""
    parts = [
        "# What a step costs",
        "The paper's FLOPs column counts 2 × the multiply-adds of forward passes only. Beside it: the forward passes "
        "of a step of ours, counted the same way, and the whole step, backward passes included, in operations and in "
        "forward passes' worth; torch's FLOP counter sees the latter in every run's record. «agrees» is within 2 %.",
    ]
    for place, (benchmark, forward) in enumerate(forward_gflops().items()):
        parts += [f"## {benchmark} ({BENCHMARKS[benchmark][0]}, {forward:.3f} G a pass)", _table(_rows(place, forward))]
    remarks = [f"- `{method}`: {remark}" for method, remark in REMARKS.items()]
    return "\n\n".join([*parts, "## Where the paper's figure and ours part", "\n".join(remarks)]) + "\n"


def _rows(place: int, forward: float) -> Iterable[tuple[str, ...]]:
    for method, published in PUBLISHED.items():
        kind = registered_methods()[method]
        counted, whole = kind.forward_cost * forward, kind.forward_cost + kind.backward_cost
        agrees = abs(counted / published[place] - 1) <= AGREES
        verdict = "agrees" if agrees else f"paper: {published[place] / forward:.1f} passes"
        yield kind.title, f"{published[place]:g}", f"{counted:.2f}", verdict, f"{whole * forward:.1f}", f"{whole:g} ×"


def _table(rows: Iterable[tuple[str, ...]]) -> str:
    head = ("method", "paper, G", "forward passes, G", "", "whole step, G", "in forward passes")
    lines = [head, ("---", *["---:"] * 2, "---", *["---:"] * 2), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
