"""``reliability streams``: streams on which adaptation collapses, with and without the guard."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchmarks import options

if TYPE_CHECKING:
    from torch import Tensor

CASES = {
    "benchmark": 1,
    "twenty rounds": 1,
    "sorted by class": 1,
    "one class": 1,
    "rate x 10": 10,
    "rate x 100": 100,
}
"""Streams, by name, and the factor of the default learning rate."""
ONE_CLASS = 3


def streams(
    methods: Annotated[str, typer.Option(help="Comma-separated methods.")] = "tent,law",
    cases: Annotated[str, typer.Option(help=f"Comma-separated: {', '.join(CASES)}.")] = ",".join(CASES),
    corruptions: Annotated[str, typer.Option(help="benchmark, or held_out for choosing settings.")] = "benchmark",
    out: options.Out = None,
    as_json: options.AsJson = False,
) -> None:
    """Run methods with and without the guard on long, sorted and one-class streams, and with rates that are too high.

    The error of the last tenth of a stream is compared with that of the source model on the same images.

    Example: python -m benchmarks reliability streams --out results/bench/reliability-streams.json
    """
    import torch

    from benchmarks.reliability.data import make_adapter, predict_all
    from driftlaw.errors import unknown_name
    from driftlaw.hardware import environment

    names, chosen = options.split_names(methods), options.split_names(cases)
    for case in chosen:
        if case not in CASES:
            raise unknown_name("case", case, list(CASES))

    def measure(on_progress: options.ProgressCallback) -> dict[str, Any]:
        rows = []
        for case in chosen:
            batches = make_batches(case, corruptions)
            first = len(batches) - max(1, len(batches) // 10)
            last = slice(sum(len(labels) for _, labels in batches[:first]), None)
            source = predict_all(make_adapter("source", guard=False), batches).double()
            for method in names:
                default = make_adapter(method, guard=False).config.learning_rate
                for guard in (False, True):
                    adapter = make_adapter(method, guard=guard, learning_rate=CASES[case] * default)
                    start = time.perf_counter()
                    wrong = predict_all(adapter, batches).double()
                    rows.append(
                        {
                            "stream": case,
                            "method": method,
                            "guard": guard,
                            "images": len(wrong),
                            "batch_size": len(batches[0][1]),
                            "error": 100 * float(wrong.mean()),
                            "last_tenth": 100 * float(wrong[last].mean()),
                            "source_error": 100 * float(source.mean()),
                            "source_last_tenth": 100 * float(source[last].mean()),
                            "actions": dict(adapter.guard.counts) if adapter.guard else {},
                            "seconds": time.perf_counter() - start,
                        }
                    )
                    on_progress(f"{case}, {method}, guard {guard}: {rows[-1]['last_tenth']:.1f} % in the last tenth")
        protocol = {"corruptions": corruptions, "rows": rows}
        return {"bench": "reliability-streams", **protocol, **environment(torch.device("cpu"))}

    options.report_result(measure, 2 * len(names) * len(chosen), out, as_json)


def make_batches(case: str, corruptions: str) -> list[tuple[Tensor, Tensor]]:
    """Return the images and labels of every batch of a stream."""
    from benchmarks.reliability.data import read_domains

    if case == "one class":
        domains = read_domains(2000, corruptions)
        return _split([(images[labels == ONE_CLASS], labels[labels == ONE_CLASS]) for images, labels in domains], 50)
    if case == "sorted by class":
        orders = [(images, labels, labels.argsort(stable=True)) for images, labels in read_domains(500, corruptions)]
        return _split([(images[order], labels[order]) for images, labels, order in orders], 50)
    if case == "twenty rounds":
        return 20 * _split(read_domains(50, corruptions), 50)
    return _split(read_domains(600, corruptions), 200)


def _split(domains: list[tuple[Tensor, Tensor]], size: int) -> list[tuple[Tensor, Tensor]]:
    return [pair for images, labels in domains for pair in zip(images.split(size), labels.split(size), strict=True)]
