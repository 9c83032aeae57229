"""What it costs to record all facts of every step: the same steps with and without them, in turns."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from driftlaw.bench.networks import Network
from driftlaw.bench.timing import Told, clock_of, kernels, silent, spread, take_turns
from driftlaw.bench.variants import Contender, Variant, sort_out
from driftlaw.loop import plain_facts
from driftlaw.probes import environment
from driftlaw.records.jsonl import dump_line


def compare_facts(
    networks: Iterable[Network],
    *,
    batch_sizes: Sequence[int],
    variants: Iterable[Variant],
    device: torch.device,
    rounds: int,
    steps: int,
    warm_up: int,
    seed: int = 0,
    deterministic: bool = False,
    pool: Tensor | None = None,
    told: Told = silent,
) -> dict[str, Any]:
    """Time steps whose answers go into a record's line, without the method's facts and with them.

    Both move the answer to the host and write a line, as a run does; one of them writes the facts into it too. The cost
    is the median over rounds of their ratio, less 1. The arguments are those of ``compare_steps``; variants that are
    not ours have no facts and are passed over.

    Returns:
        Plain data: ``rows`` with one entry a network, batch size and variant, how it was measured, and where.
    """
    fit, left_out = sort_out(variant for variant in variants if variant.is_ours)
    rows = []
    for network in networks:
        for batch_size in batch_sizes:
            for variant in fit:
                pair = [
                    _Recording(variant, network, batch_size, device=device, seed=seed, pool=pool, facts=facts)
                    for facts in (False, True)
                ]
                with kernels(deterministic):
                    without, including = take_turns(pair, rounds=rounds, steps=steps, warm_up=warm_up, told=told)
                rows.append(
                    {
                        **network.facts(),
                        "batch_size": batch_size,
                        **variant.facts(),
                        "numbers": pair[1].numbers,
                        "without": spread(without),
                        "with": spread(including),
                        "cost": statistics.median(b / a for a, b in zip(without, including, strict=True)) - 1,
                    }
                )
    return {
        "bench": "facts",
        "seed": seed,
        "rounds": rounds,
        "steps_per_round": steps,
        "warm_up": warm_up,
        "deterministic": deterministic,
        "clock": clock_of(device),
        "left_out": left_out,
        "rows": rows,
        **environment(device),
    }


class _Recording(Contender):
    """A contender that makes a record's line of every step, with the facts or without.

    Attributes:
        numbers: how many numbers the facts of a step hold.
    """

    def __init__(self, *arguments: Any, facts: bool, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.numbers = 0
        self._step, self._facts = self.step, facts
        self.step = self._recorded

    def _recorded(self, images: Tensor) -> bytes:
        output = self._step(images)
        wrong = int((output.logits.argmax(1) != 0).sum())
        facts = plain_facts(output.facts) if self._facts else {}
        self.numbers = sum(len(value) if isinstance(value, list) else 1 for value in facts.values())
        return dump_line({"images": len(images), "wrong": wrong, "facts": facts})
