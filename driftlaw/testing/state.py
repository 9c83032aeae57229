"""Checks of a method's state between steps: reset, save, load, copy, and constant size."""

import copy
import io
import warnings
from collections.abc import Mapping
from typing import Any

import torch

from driftlaw.base import Adapter
from driftlaw.errors import UsageError
from driftlaw.testing.expect import expect, expect_none, expect_same
from driftlaw.testing.fixtures import MethodUnderTest, OtherMethod, make_images, run_batches, tiny_model
from driftlaw.testing.snapshots import (
    attributes_holding_graphs,
    attributes_of,
    object_count,
    saved_bytes,
    state_of,
)

LONG = 50
WARM_UP = 20  # an optimizer creates its moments in the first update; after 80 images nothing new is expected
FILE_TOLERANCE = 256  # bytes by which the bookkeeping of a saved file may differ from one file to the next


def reset_restores_initial_state(method: MethodUnderTest) -> None:
    """After three steps and reset(), state and further logits equal those of a new adapter bit for bit."""
    fresh, used = method.adapter(), method.adapter_after(3)
    used.reset()
    reason = "reset() does not restore {}. Keep what a step changes in buffers or in parameters that require grad."
    expect_same(state_of(fresh), state_of(used), reason)
    _expect_same_steps(fresh, used, "After reset()")


def save_and_load_continue_exactly(method: MethodUnderTest) -> None:
    """Three steps, save, load and three steps equal six steps bit for bit; the file holds only plain tensors."""
    uninterrupted = method.adapter_after(3)
    state = torch.load(io.BytesIO(saved_bytes(uninterrupted)), weights_only=True)
    for name, resumed in {"a new adapter": method.adapter(), "a used adapter": method.adapter_after(1)}.items():
        resumed.load_state_dict(state)
        reason = f"After loading into {name}, {{}} differ from what was saved."
        expect_same(state_of(uninterrupted), state_of(resumed), reason)
        _expect_same_steps(copy.deepcopy(uninterrupted), resumed, f"After loading into {name}")


def state_size_is_constant(method: MethodUnderTest) -> None:
    """Between step 20 and step 50 neither the saved state nor the adapter's attributes grow."""
    adapter = method.adapter()
    sizes = []
    for index in range(LONG):
        adapter(make_images(index, count=4))
        if index + 1 in (WARM_UP, LONG):
            sizes.append((len(saved_bytes(adapter)), object_count(adapter)))
    (file_size, objects), (file_size_later, objects_later) = sizes
    grown = [name for name in objects_later if objects_later[name] > objects.get(name, 0)]
    expect_none(grown, f"These attributes grew between step {WARM_UP} and step {LONG}: {{}}.")
    growth = file_size_later - file_size
    expect(growth <= FILE_TOLERANCE, f"The saved file grew by {growth} bytes between step {WARM_UP} and step {LONG}.")
    expect_none(attributes_holding_graphs(adapter), "{} hold autograd graphs of past steps. Detach what is kept.")


def rejects_state_of_other_method(method: MethodUnderTest) -> None:
    """Loading the state of another method or of a plain model raises a UsageError and changes nothing."""
    adapter = method.adapter_after(1)
    before = state_of(adapter)
    states = {"another method": OtherMethod(tiny_model()).state_dict(), "a plain model": tiny_model().state_dict()}
    for name, state in states.items():
        try:
            adapter.load_state_dict(state)
        except UsageError:
            expect_same(before, state_of(adapter), f"Rejecting the state of {name} changed {{}}.")
        else:
            expect(False, f"The state of {name} was loaded, expected a UsageError.")


def warns_about_different_settings(method: MethodUnderTest) -> None:
    """Loading a state saved with a different setting warns and names the setting; otherwise there is no warning."""
    state = copy.deepcopy(method.adapter_after(1).state_dict())
    messages = _warnings_on_load(method.adapter(), state)
    expect_none(messages, "Loading a state with the same settings warns: {}")
    for name, value in state["_extra_state"]["config"].items():
        changed = copy.deepcopy(state)
        changed["_extra_state"]["config"][name] = _different_value(value)
        messages = _warnings_on_load(method.adapter(), changed)
        expect(any(name in message for message in messages), f"A state with a different {name} loads without warning.")


def deepcopy_is_independent(method: MethodUnderTest) -> None:
    """Steps of a deep copy do not change the original, and both give the same logits for the same images."""
    original = method.adapter_after(2)
    before = state_of(original)
    logits = run_batches(copy.deepcopy(original), range(2, 5))
    expect_same(before, state_of(original), "Steps of a deep copy changed {} of the original.")
    reason = "A deep copy and its original return different logits for the same images."
    expect_same(logits, run_batches(original, range(2, 5)), reason)


def _expect_same_steps(one: Adapter, other: Adapter, when: str) -> None:
    reason = f"{when}, logits differ. The method keeps values or draws random numbers outside its registered state."
    expect_same(run_batches(one, range(3, 6)), run_batches(other, range(3, 6)), reason)
    expect_same(state_of(one), state_of(other), f"{when}, further steps lead to another state: {{}} differ.")
    # Compared only after the steps, so that both adapters have filled their caches.
    reason = f"{when}, these attributes differ: {{}}. Register them as buffers."
    expect_same(attributes_of(one), attributes_of(other), reason)


def _warnings_on_load(adapter: Adapter, state: Mapping[str, Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        adapter.load_state_dict(state)
    return [str(warning.message) for warning in caught]


def _different_value(value: Any) -> Any:
    """Return any other value; settings of a state are only compared, never used."""
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int | float) else f"not {value}"
