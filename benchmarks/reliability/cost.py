"""``reliability cost``: time of a step with the guard, relative to a step without it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks import options

IMAGES = 2000  # of every corruption


def cost(
    methods: Annotated[str, typer.Option(help="Comma-separated methods.")] = "tent,law",
    batch_size: Annotated[int, typer.Option(min=1, help="Images per batch.")] = 200,
    rounds: Annotated[int, typer.Option(min=1, help="Passes over the fifteen corruptions.")] = 2,
    network: Annotated[str | None, typer.Option(help="Name or path of a network (default: the embedded one).")] = None,
    device: options.Device = "cpu",
    threads: options.Threads = None,
    out: options.Out = None,
    as_json: options.AsJson = False,
) -> None:
    """Take the same steps with and without the guard in turn, on the benchmark stream, and compare their times.

    The ratio is that of the sums over all steps, so that checks of some steps count. Both adapters see every batch
    twice in a row; which one is first alternates.

    Example: python -m benchmarks reliability cost --threads 2 --out results/bench/reliability-cost.json
    """
    import torch

    from benchmarks.reliability.data import NETWORK, make_adapter, read_domains
    from driftlaw.hardware import environment, pick_device
    from driftlaw.profiling import timed

    if threads is not None:
        torch.set_num_threads(threads)
    place = pick_device(device)

    def measure(on_progress: options.ProgressCallback) -> dict[str, Any]:
        domains = [images.to(place) for images, _ in read_domains(IMAGES)]
        batches = [batch for _ in range(rounds) for images in domains for batch in images.split(batch_size)]
        rows = []
        for method in options.split_names(methods):
            adapters = {
                guard: make_adapter(method, guard=guard, network=network or NETWORK).to(place)
                for guard in (False, True)
            }
            seconds: dict[bool, list[float]] = {False: [], True: []}
            for number, batch in enumerate(batches):
                for guard in (False, True) if number % 2 else (True, False):
                    with timed(place) as timer:
                        adapters[guard](batch)
                    seconds[guard].append(timer.seconds)
            medians = {guard: float(torch.tensor(values).median()) for guard, values in seconds.items()}
            rows.append(
                {
                    "method": method,
                    "steps": len(batches),
                    "batch_size": batch_size,
                    "ratio": sum(seconds[True]) / sum(seconds[False]),
                    "ratio_of_medians": medians[True] / medians[False],
                    "seconds_per_step": medians[False],
                    "actions": dict(adapters[True].guard.counts) if adapters[True].guard else {},
                }
            )
            on_progress(f"{method}: {rows[-1]['ratio']:.3f}")
        setting = {"network": Path(network or NETWORK).stem, "threads": torch.get_num_threads()}
        return {"bench": "reliability-cost", **setting, "rows": rows, **environment(place)}

    options.report_result(measure, len(options.split_names(methods)), out, as_json)
