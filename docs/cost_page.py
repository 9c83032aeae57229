"""Writes the page that compares the FLOPs in the paper with those that torch counts."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from driftlaw.methods import registered_methods
from driftlaw.models import build_model
from driftlaw.profiling import count_flops

# Model, number of classes and image size of the paper's three benchmarks.
BENCHMARKS = {
    "CIFAR-10-C": ("wrn_28_10", 10, 32),
    "CIFAR-100-C": ("resnext_29_4x32", 100, 32),
    "ImageNet-C": ("resnet50", 1000, 224),
}
# Last column of Table 1 of the paper: GFLOPs per image, in the order of the benchmarks.
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
    "source": "On ImageNet-C the paper prints 21 times one forward pass; its number for TENT, also one pass, is 8.24.",
    "norm": "See source.",
    "adacontrast": "The paper prints two and a half passes; a step has five: the weak view through both networks, a "
    "strong view through each, and the prediction after the update.",
    "law": "The paper prints four passes. A step needs two, because one pass serves score, loss and prediction; the "
    "released code runs more.",
    "rmt": "The paper prints about 400 passes on CIFAR and 134 on ImageNet. A step of the method has four, and the "
    "paper does not say what was counted.",
}


def forward_gflops() -> dict[str, float]:
    """Return the GFLOPs of one forward pass per image on each benchmark, counting 2 per multiply-add."""
    costs = {}
    for benchmark, (name, classes, side) in BENCHMARKS.items():
        with torch.device("meta"):
            model = build_model(name, num_classes=classes).eval()
            _, flops = count_flops(lambda: model(torch.empty(1, 3, side, side)))  # noqa: B023 - called at once
        costs[benchmark] = flops / 1e9
    return costs


def cost_page() -> str:
    """Return the page: one table per benchmark, one row per method."""
    parts = [
        "# Cost of a step",
        "The FLOPs column of the LAW paper counts 2 × the multiply-adds of forward passes only. The tables compare it "
        "with the forward passes of a step in driftlaw, counted in the same way, and with the whole step including "
        'backward passes. torch\'s FLOP counter measures the latter in every run. "agrees" means within 2 %.',
    ]
    for index, (benchmark, forward) in enumerate(forward_gflops().items()):
        parts += [
            f"## {benchmark} ({BENCHMARKS[benchmark][0]}, {forward:.3f} GFLOPs per pass)",
            _table(rows(index, forward)),
        ]
    remarks = [f"- `{method}`: {remark}" for method, remark in REMARKS.items()]
    return "\n\n".join([*parts, "## Where the numbers differ", "\n".join(remarks)]) + "\n"


def rows(index: int, forward: float) -> Iterable[tuple[str, ...]]:
    """Yield the table rows of benchmark number ``index``, whose forward pass costs ``forward`` GFLOPs."""
    for method, published in PUBLISHED.items():
        kind = registered_methods()[method]
        counted, whole = kind.forward_cost * forward, kind.forward_cost + kind.backward_cost
        agrees = abs(counted / published[index] - 1) <= AGREES
        verdict = "agrees" if agrees else f"paper: {published[index] / forward:.1f} passes"
        yield kind.title, f"{published[index]:g}", f"{counted:.2f}", verdict, f"{whole * forward:.1f}", f"{whole:g} ×"


def _table(body: Iterable[tuple[str, ...]]) -> str:
    head = ("method", "paper, GFLOPs", "forward passes, GFLOPs", "", "whole step, GFLOPs", "in forward passes")
    lines = [head, ("---", *["---:"] * 2, "---", *["---:"] * 2), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
