"""Interleaved timing: every target runs in every round, so that disturbances of the machine affect all alike."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from benchmarks.cases import BenchCase
from benchmarks.targets import BenchTarget

ProgressCallback = Callable[[str], None]


@dataclass(frozen=True)
class Repetitions:
    """How often to measure.

    Attributes:
        rounds: number of rounds; each target gets one measurement per round.
        steps: minimum number of steps per round; targets whose work repeats every k steps run whole cycles.
        warm_up: steps before the first round, not timed.
    """

    rounds: int
    steps: int
    warm_up: int

    @classmethod
    def default(
        cls, device: torch.device, rounds: int | None = None, steps: int | None = None, warm_up: int | None = None
    ) -> Repetitions:
        """Return the given numbers; those that are None get the default of the device, more on a GPU than on a CPU."""
        default = cls(rounds=20, steps=10, warm_up=10) if device.type == "cuda" else cls(rounds=7, steps=1, warm_up=2)
        given = {"rounds": rounds, "steps": steps, "warm_up": warm_up}
        return replace(default, **{name: value for name, value in given.items() if value is not None})

    def info(self) -> dict[str, int]:
        """Return the description for a record."""
        return {"rounds": self.rounds, "steps_per_round": self.steps, "warm_up": self.warm_up}


def no_progress(text: str) -> None:
    """Ignore a progress message."""


@contextmanager
def cudnn_kernels(deterministic: bool) -> Iterator[None]:
    """Context manager that selects the fastest cuDNN kernels, or the deterministic ones of ``driftlaw run``."""
    with torch.backends.cudnn.flags(enabled=True, benchmark=not deterministic, deterministic=deterministic):
        yield


def time_variants(
    case: BenchCase, repetitions: Repetitions, *, on_progress: ProgressCallback = no_progress
) -> list[list[float]]:
    """Return the milliseconds per step of every supported variant of a case, one number per round."""
    with cudnn_kernels(case.plan.deterministic):
        targets = [case.target(variant) for variant in case.plan.supported]
        times = measure_interleaved(targets, repetitions, on_progress=on_progress)
    del targets
    gc.collect()
    return times


def measure_interleaved(
    targets: Sequence[BenchTarget], repetitions: Repetitions, *, on_progress: ProgressCallback = no_progress
) -> list[list[float]]:
    """Return the milliseconds per step of every target, one number per round.

    In every round each target runs some steps. The target that goes first changes from round to round.

    Args:
        targets: targets on the same device.
        repetitions: rounds, steps per round and warm-up steps.
        on_progress: called with the label of every target after its warm-up and after each of its rounds.
    """
    for target in targets:
        target.warm_up(repetitions.warm_up)
        on_progress(target.variant.label)
    times: list[list[float]] = [[] for _ in targets]
    for number in range(repetitions.rounds):
        for position in range(len(targets)):
            index = (position + number) % len(targets)
            target = targets[index]
            times[index].append(milliseconds_per_step(target, target.whole_cycles(repetitions.steps)))
            on_progress(target.variant.label)
    return times


def milliseconds_per_step(target: BenchTarget, steps: int) -> float:
    """Run steps and return the milliseconds per step, measured with CUDA events on a GPU and perf_counter on a CPU."""
    device = target.device
    if device.type != "cuda":
        start = time.perf_counter()
        target.run(steps)
        return 1000 * (time.perf_counter() - start) / steps
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize(device)
    first.record(torch.cuda.current_stream(device))
    target.run(steps)
    last.record(torch.cuda.current_stream(device))
    torch.cuda.synchronize(device)
    return first.elapsed_time(last) / steps


def spread(numbers: Sequence[float]) -> dict[str, float]:
    """Return the median, the minimum and the quartiles.

    >>> spread([3.0, 1.0, 2.0])
    {'median': 2.0, 'min': 1.0, 'lower_quartile': 1.5, 'upper_quartile': 2.5}
    """
    if len(numbers) == 1:
        lower = upper = numbers[0]
    else:
        lower, _, upper = statistics.quantiles(numbers, n=4, method="inclusive")
    return {
        "median": statistics.median(numbers),
        "min": min(numbers),
        "lower_quartile": lower,
        "upper_quartile": upper,
    }


def clock_name(device: torch.device) -> str:
    """Return the name of the clock for a record."""
    return "CUDA events" if device.type == "cuda" else "perf_counter"
