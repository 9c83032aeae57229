"""Checks of what a method keeps between steps: reset, saved, loaded, copied, and no larger than it was."""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Mapping
from typing import Any

import torch

from driftlaw.base import Adapter
from driftlaw.errors import UsageError
from driftlaw.testing.fixtures import Still, Subject, expect, make_images, take_steps, tiny_model
from driftlaw.testing.snapshots import (
    attributes_of,
    differences,
    kept_graphs,
    named,
    saved_bytes,
    saved_tensors,
    state_of,
    weight,
)

LONG = 50
WARM = 5  # an optimizer makes its moments at the first step; after this many nothing new is due
FILE_SLACK = 256  # bytes by which a file's own bookkeeping may differ from one saving to the next


def reset_equals_fresh(subject: Subject) -> None:
    """After some steps and reset(), state and further answers are those of a new adapter, bit for bit."""
    fresh, used = subject.adapter(), subject.stepped()
    used.reset()
    differing = differences(state_of(fresh), state_of(used))
    hint = "what a step changes is a buffer, or a parameter that requires gradients"
    expect(not differing, f"reset() leaves {named(differing)} as the steps made them: {hint}")
    _expect_same_path(fresh, used, range(3, 6), "after reset()")


def saving_and_loading_changes_nothing(subject: Subject) -> None:
    """Three steps, save, load, three steps equal six steps, bit for bit, through a file of plain tensors."""
    straight = subject.stepped()
    state = _through_a_file(straight)
    for name, resumed in {"a new adapter": subject.adapter(), "a used adapter": subject.stepped(1)}.items():
        resumed.load_state_dict(state)
        differing = differences(state_of(straight), state_of(resumed))
        expect(not differing, f"loaded into {name}, {named(differing)} differ from what was saved")
        _expect_same_path(copy.deepcopy(straight), resumed, range(3, 6), f"loaded into {name}")


def the_state_does_not_grow(subject: Subject) -> None:
    """Between step 5 and step 50 the saved state and everything the adapter holds keep their size."""
    adapter = subject.adapter()
    sizes = []
    for number in range(LONG):
        adapter(make_images(number, count=4))
        if number + 1 in (WARM, LONG):
            sizes.append((saved_tensors(adapter), len(saved_bytes(adapter)), weight(adapter)))
    (tensors, file_size, held), (tensors_later, file_size_later, held_later) = sizes
    expect(
        tensors == tensors_later,
        f"{_told(tensors)} in the state after {WARM} steps, {_told(tensors_later)} after {LONG}",
    )
    grown = [name for name in held_later if held_later[name] > held.get(name, 0)]
    expect(not grown, f"from step {WARM} to {LONG} these attributes grew: {named(grown)}")
    growth = file_size_later - file_size
    expect(growth <= FILE_SLACK, f"from step {WARM} to {LONG} the saved file grew by {growth} bytes")
    graphs = kept_graphs(adapter)
    expect(not graphs, f"{named(graphs)} keep the graphs of past steps alive: detach what is kept")


def another_methods_state_is_refused(subject: Subject) -> None:
    """The state of another method, or of a bare network, raises a UsageError and changes nothing."""
    adapter = subject.stepped(1)
    before = state_of(adapter)
    strangers = {"another method": Still(tiny_model()).state_dict(), "a bare network": tiny_model().state_dict()}
    for name, state in strangers.items():
        try:
            adapter.load_state_dict(state)
        except UsageError:
            changed = differences(before, state_of(adapter))
            expect(not changed, f"the state of {name} was refused, but not without changing {named(changed)}")
        else:
            expect(False, f"the state of {name} was taken: expected a UsageError")


def other_settings_are_warned_about(subject: Subject) -> None:
    """Loading a state made with another setting warns and names it; loading one of the same settings is silent."""
    adapter = subject.stepped(1)
    state = copy.deepcopy(adapter.state_dict())
    told = _warnings_of(subject.adapter(), state)
    expect(not told, f"a state of the same settings is warned about: {named(told)}")
    for name, value in state["_extra_state"]["config"].items():
        changed = copy.deepcopy(state)
        changed["_extra_state"]["config"][name] = _another(value)
        told = _warnings_of(subject.adapter(), changed)
        expect(any(name in text for text in told), f"a state made with another {name} is loaded without a warning")


def a_deep_copy_goes_its_own_way(subject: Subject) -> None:
    """What a copy learns does not reach the original, and both go the same way on the same images."""
    original = subject.stepped(2)
    before = state_of(original)
    twin = copy.deepcopy(original)
    answers = take_steps(twin, range(2, 5))
    changed = differences(before, state_of(original))
    expect(not changed, f"the steps of a deep copy changed {named(changed)} of the original")
    differing = differences(answers, take_steps(original, range(2, 5)))
    expect(not differing, "a deep copy and its original give other answers to the same images")


def _expect_same_path(one: Adapter, other: Adapter, numbers: range, when: str) -> None:
    differing = differences(take_steps(one, numbers), take_steps(other, numbers))
    expect(not differing, f"{when} it gives other answers: what it keeps, or draws from, is no registered state")
    differing = differences(state_of(one), state_of(other))
    expect(not differing, f"{when} its steps lead elsewhere: {named(differing)} differ")
    # Compared only now, so that what a method works out once and keeps is there on both sides.
    differing = differences(attributes_of(one), attributes_of(other))
    expect(not differing, f"{when} these attributes differ: {named(differing)}; register them as buffers")


def _through_a_file(adapter: Adapter) -> dict[str, Any]:
    return torch.load(io.BytesIO(saved_bytes(adapter)), weights_only=True)


def _warnings_of(adapter: Adapter, state: Mapping[str, Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        adapter.load_state_dict(state)
    return [str(warning.message) for warning in caught]


def _another(value: Any) -> Any:
    """Return a value that is not this one; the state is only compared with it, never computed with."""
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int | float) else f"not {value}"


def _told(tensors: tuple[int, int]) -> str:
    count, size = tensors
    return f"{count} tensors of {size} bytes"
