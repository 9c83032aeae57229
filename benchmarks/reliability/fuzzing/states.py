"""Targets: saved states of adapters, and pools of streams."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from hypothesis import strategies as st

from benchmarks.reliability.fuzzing.api import methods
from benchmarks.reliability.fuzzing.checker import Checker, Draw, copy_state, same_state
from benchmarks.reliability.fuzzing.networks import BATCH, SIDE, adapter_of, tiny
from benchmarks.reliability.fuzzing.values import NAN, any_values, damage_bytes, damage_tree, mostly
from driftlaw.base import Adapter
from driftlaw.pool import AdapterPool

tensors = st.sampled_from(
    (
        *(
            torch.zeros(0),
            torch.zeros(1),
            torch.zeros(4),
            torch.zeros(4, 3, 3, 3),
            torch.full((4,), NAN),
            torch.ones(3, 4),
        ),
        *(torch.zeros(4, dtype=torch.int64), torch.zeros(4, dtype=torch.complex64), torch.zeros(4).to("meta")),
        *(torch.zeros(5056, dtype=torch.uint8), torch.zeros(16, dtype=torch.uint8), torch.tensor(True)),
    )
)


def saved_states(draw: Draw, checker: Checker, folder: Path) -> None:
    """``load_state_dict`` with damaged states; what is accepted must work, what is refused must change nothing."""
    adapter = adapter_of(draw(methods))
    images = torch.rand(BATCH, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(1))
    adapter.reset()
    if draw(st.booleans()):
        adapter(images)
    state: Any = copy_state(adapter)
    adapter.reset()
    kind = draw(st.sampled_from(("damaged",) * 5 + ("numbers",) * 3 + ("model", "other")))
    if kind == "numbers":
        name = draw(st.sampled_from([name for name, value in state.items() if isinstance(value, torch.Tensor)]))
        state[name] = torch.full_like(state[name], draw(st.sampled_from((0, 1, 3, 100))))
    elif kind == "model":
        state = tiny().state_dict()
    elif kind == "other":
        state = draw(any_values)
    else:
        state = damage_tree(draw, state, any_values | tensors)
    keywords = draw(st.sampled_from(({}, {}, {}, {"assign": True}, {"strict": False})))

    def load(adapter: Adapter, state: Any, keywords: dict[str, Any]) -> bool:
        adapter.load_state_dict(state, **keywords)
        return True

    initial = copy_state(adapter)
    if checker.call(load, adapter, state, keywords, adapter=adapter):

        def step_and_reset(adapter: Adapter, state: Any) -> None:
            try:
                adapter(images)
            finally:
                adapter.reset()

        checker.call(step_and_reset, adapter, state)
    if not same_state(initial, copy_state(adapter)):
        adapter_of.cache_clear()
        checker.expect(False, "load_state_dict: reset() does not return to the initial state")


def pools(draw: Draw, checker: Checker, folder: Path) -> None:
    """``AdapterPool`` with unusual limits, folders and names of streams, and with damaged files."""
    images = torch.rand(BATCH, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(1))
    limits = {
        name: mostly(draw, st.sampled_from((0, 0, 10_000, "1 MB", None)), any_values)
        for name in ("memory", "host_memory")
    }
    others = any_values.filter(lambda value: not isinstance(value, str | os.PathLike))  # no folders elsewhere
    place = mostly(draw, st.just(folder / "pool"), others)
    pool = checker.call(AdapterPool, tiny(), "tent", folder=place, **limits)
    if not isinstance(pool, AdapterPool):
        return
    names = ["a", "b", mostly(draw, st.text(), any_values)]
    for name in (*names, *names):
        checker.call(pool, images, stream=name)
    for path in sorted((folder / "pool").glob("stream-*")):
        path.write_bytes(damage_bytes(draw, path.read_bytes()))
    for name in names:
        checker.call(pool, images, stream=name)
        checker.call(draw(st.sampled_from((pool.reset, pool.remove))), name)
    checker.call(pool.save)
