"""Milliseconds of several contenders, taken in turns, so that whatever disturbs the machine disturbs all alike."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from benchmarks.cases import Cell
from benchmarks.variants import Contender

Told = Callable[[str], None]


@dataclass(frozen=True)
class Pace:
    """How often to measure.

    Attributes:
        rounds: how many times each contender has its turn, and how many numbers it gets.
        steps: at least so many steps a turn; a contender whose work repeats every k-th step runs whole cycles.
        warm_up: steps that are not timed, before the first turn.
    """

    rounds: int
    steps: int
    warm_up: int

    @classmethod
    def usual(
        cls, device: torch.device, rounds: int | None = None, steps: int | None = None, warm_up: int | None = None
    ) -> Pace:
        """Return what is asked for, else much on a GPU, where steps are short, and less on a CPU."""
        usual = cls(rounds=20, steps=10, warm_up=10) if device.type == "cuda" else cls(rounds=7, steps=1, warm_up=2)
        asked = {"rounds": rounds, "steps": steps, "warm_up": warm_up}
        return replace(usual, **{name: value for name, value in asked.items() if value is not None})

    def facts(self) -> dict[str, int]:
        """Return what a record says of it, as plain data."""
        return {"rounds": self.rounds, "steps_per_round": self.steps, "warm_up": self.warm_up}


def silent(text: str) -> None:
    """Tell nobody."""


@contextmanager
def kernels(deterministic: bool) -> Iterator[None]:
    """Inside, cuDNN takes its fastest kernels, as others' benchmarks do, or those that ``driftlaw run`` takes."""
    with torch.backends.cudnn.flags(enabled=True, benchmark=not deterministic, deterministic=deterministic):
        yield


def time_variants(cell: Cell, pace: Pace, *, told: Told = silent) -> list[list[float]]:
    """Return the milliseconds a step of every variant that fits, all of them made at once, a number a round."""
    with kernels(cell.plan.deterministic):
        taken = take_turns([cell.contender(variant) for variant in cell.plan.fit], pace, told=told)
    gc.collect()
    return taken


def take_turns(contenders: Sequence[Contender], pace: Pace, *, told: Told = silent) -> list[list[float]]:
    """Return the milliseconds a step of every contender, a number a round.

    In every round each contender runs some steps; who comes first changes from round to round.

    Args:
        contenders: all made, all on the same device.
        pace: how often.
        told: is handed the label of every contender when it is warm, and again after every round.
    """
    for contender in contenders:
        contender.warm_up(pace.warm_up)
        told(contender.variant.label)
    taken: list[list[float]] = [[] for _ in contenders]
    for number in range(pace.rounds):
        for place in range(len(contenders)):
            index = (place + number) % len(contenders)
            contender = contenders[index]
            taken[index].append(milliseconds(contender, contender.whole_cycles(pace.steps)))
            told(contender.variant.label)
    return taken


def milliseconds(contender: Contender, steps: int) -> float:
    """Return the milliseconds a step takes: events on a GPU, the clock on a CPU."""
    device = contender.device
    if device.type != "cuda":
        start = time.perf_counter()
        contender.run(steps)
        return 1000 * (time.perf_counter() - start) / steps
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize(device)
    first.record(torch.cuda.current_stream(device))
    contender.run(steps)
    last.record(torch.cuda.current_stream(device))
    torch.cuda.synchronize(device)
    return first.elapsed_time(last) / steps


def spread(numbers: Sequence[float]) -> dict[str, float]:
    """Return the median, the smallest and the quartiles of some numbers.

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


def clock_of(device: torch.device) -> str:
    """Return in words what times were taken with."""
    return "CUDA events" if device.type == "cuda" else "perf_counter"
