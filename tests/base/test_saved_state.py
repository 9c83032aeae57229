"""Saved states: consistent copies while steps run, and refusal of damaged ones before anything changes."""

import copy
import threading
from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import nn

import driftlaw
from driftlaw.errors import UsageError
from driftlaw.testing.fixtures import make_images, tiny_model
from driftlaw.testing.snapshots import differences, state_of
from tests.base.models import small_model
from tests.testing.broken_methods import Good


def make_adapter(method, **settings):
    torch.manual_seed(0)
    return driftlaw.adapt(small_model(), method, **settings)


# --- copies ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("tent", {}),
        ("law", {"moments": "kept"}),
        ("cotta", {"augmentations": 2}),
        ("rotta", {}),
        ("tent", {"statistics": "window"}),
    ],
)
def test_a_state_dict_does_not_change_with_later_steps(method, settings):
    adapter = make_adapter(method, **settings)
    adapter(make_images(count=4))
    state = adapter.state_dict()
    before = copy.deepcopy(state)
    for number in range(3):
        adapter(make_images(number, count=40))
    assert not differences(before, state)


def test_a_state_dict_waits_for_the_step_of_another_thread(adapter):
    entered, leave, states = threading.Event(), threading.Event(), []

    class Pause:
        def on_step(self, adapter, output):
            entered.set()
            assert leave.wait(60)

        def close(self):
            pass

    adapter.add_callback(Pause())
    step = threading.Thread(target=adapter, args=(make_images(),))
    step.start()
    assert entered.wait(60)
    save = threading.Thread(target=lambda: states.append(adapter.state_dict()))
    save.start()
    save.join(0.2)
    assert not states
    leave.set()
    step.join(60)
    save.join(60)
    assert len(states) == 1
    assert not differences(states[0], adapter.state_dict())


def test_tensors_that_share_memory_share_it_in_the_copy():
    model = nn.Sequential(nn.Conv2d(3, 3, 3), nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(432, 4))
    model[1].weight = model[0].weight
    state = driftlaw.adapt(model, "tent").state_dict()
    assert state["model.0.weight"].data_ptr() == state["model.1.weight"].data_ptr()
    assert state["model.0.weight"].data_ptr() != model[0].weight.data_ptr()


def test_the_arguments_of_state_dict_work_as_in_torch(adapter):
    adapter(make_images())
    given = OrderedDict(other=torch.zeros(1))
    other = given["other"]
    state = adapter.state_dict(destination=given, prefix="inner.")
    assert state is given
    assert state["other"] is other
    assert not differences({f"inner.{name}": value for name, value in adapter.state_dict().items()} | given, state)
    live = adapter.state_dict(keep_vars=True)
    assert all(live[name] is value for name, value in adapter.named_parameters())
    outer = nn.ModuleDict({"inner": adapter}).state_dict()
    assert set(outer) == set(state) - {"other"}
    assert all(
        not value.is_inference() for value in _inference_state(adapter).values() if isinstance(value, torch.Tensor)
    )


def _inference_state(adapter):
    with torch.inference_mode():
        return adapter.state_dict()


# --- damaged states ----------------------------------------------------------------------------------------------

CASES = {
    "tent": ("tent", {}),
    "tent window": ("tent", {"statistics": "window"}),
    "tent sgd": ("tent", {"optimizer": "sgd"}),
    "law": ("law", {"moments": "kept"}),
    "cotta": ("cotta", {"augmentations": 2}),
    "rotta": ("rotta", {}),
    "palm": ("palm", {}),
}


def paths(value, path=()):
    """Return the path of every entry of a nested state, containers included."""
    found = [path] if path else []
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    return found + [entry for key, child in children for entry in paths(child, (*path, key))]


def damages(value):
    """Return other values for an entry."""
    others = ["text", None, [], {"unknown": 1}, object(), np.arange(2), float("nan"), torch.zeros(2, 5)]
    if isinstance(value, bool | int | float):
        return [*others, -1, float("inf"), str(value), True, 10**400, torch.zeros(())]
    if isinstance(value, dict):
        return [*others, {}, {**value, "unknown": torch.ones(2)}, {**value, 7: "x"}, dict(list(value.items())[1:])]
    if isinstance(value, list | tuple):
        return [*others, [*value, 1], list(value)[1:]]
    if not isinstance(value, torch.Tensor):
        return others
    flat = value.clone().flatten()
    others += [value.to(torch.complex64), value.unsqueeze(0), torch.cat([flat, flat]), value.to("meta")]
    others += [value.to_sparse(), value.half() if value.is_floating_point() else value.double()]
    if value.is_floating_point() and value.numel():
        flat[-1] = float("nan")
        others.append(flat.reshape(value.shape))
    return [*others, torch.full_like(value, 255)] if value.dtype == torch.uint8 else others


def one_of_each_kind(state):
    """Return the paths of a state, but of tensors in the same module with as many dimensions only the first."""
    kinds = {}
    for path in paths(state):
        value = state[path[0]]
        kind = (path[0].partition(".")[0].rstrip("0123456789"), value.ndim) if isinstance(value, torch.Tensor) else path
        kinds.setdefault(kind, path)
    return kinds.values()


def replaced(state, path, value):
    """Return a shallow copy of a nested state with another value at a path; ``...`` removes the entry."""
    result = copy.copy(state) if isinstance(state, dict) else list(state)
    key, *rest = path
    if rest:
        result[key] = replaced(state[key], rest, value)
    elif value is ...:
        del result[key]
    else:
        result[key] = value
    return result


@pytest.mark.filterwarnings("ignore:The saved state")
@pytest.mark.parametrize("case", CASES)
def test_a_damaged_state_is_refused_and_changes_nothing_or_is_loaded(case):
    method, settings = CASES[case]
    adapter, other = make_adapter(method, **settings), make_adapter(method, **settings)
    adapter(make_images(0, count=40))
    adapter(make_images(1, count=8))  # stays in the window
    saved = dict(adapter.state_dict())
    other(make_images(9, count=40))
    other(make_images(9, count=3))
    own, before = other.state_dict(), state_of(other)
    refused = 0
    for path in one_of_each_kind(saved):
        if path[3:4] == ("state",) and path[4:5] > (1,):
            continue
        value = saved
        for key in path:
            value = value[key]
        for damage in [..., *damages(value)]:
            state = replaced(saved, path, damage)
            try:
                other.load_state_dict(state)
            except UsageError:
                refused += 1
                assert not differences(before, state_of(other)), (path, damage)
            else:
                other(make_images(3, count=40))
                other(make_images(3, count=5))
                other.load_state_dict(own)
                assert not differences(before, state_of(other)), (path, damage)
    assert refused > 50
    other.load_state_dict(saved)
    assert not differences(state_of(adapter), state_of(other))


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("error", [RuntimeError("unforeseen"), KeyboardInterrupt()])
def test_an_unforeseen_failure_while_loading_restores_the_adapter(adapter, monkeypatch, error, assign):
    adapter(make_images())
    torch.manual_seed(1)
    other = Good(small_model())
    other(make_images(1))
    saved = other.state_dict()
    given, before, initial = copy.deepcopy(saved), state_of(adapter), copy.deepcopy(adapter._initial_state)
    expected = copy.deepcopy(adapter)(make_images(2))

    def fail(*args):
        monkeypatch.undo()
        raise error

    monkeypatch.setattr(type(adapter.model[3]), "_load_from_state_dict", fail)
    with pytest.raises(UsageError if isinstance(error, Exception) else KeyboardInterrupt):
        adapter.load_state_dict(saved, assign=assign)
    assert not differences(before, state_of(adapter))
    assert not differences(initial, adapter._initial_state)
    assert not differences(given, saved)
    assert torch.equal(adapter(make_images(2)), expected)


@pytest.mark.parametrize("state", [None, [], "state", {"_extra_state": None}, {1: 2}])
def test_what_is_not_a_state_is_refused(adapter, state):
    before = state_of(adapter)
    with pytest.raises(UsageError, match="state_dict"):
        adapter.load_state_dict(state)
    assert not differences(before, state_of(adapter))


def test_the_error_names_entries_with_what_was_expected(adapter):
    adapter(make_images())
    state = adapter.state_dict()
    state["model.0.weight"][0] = float("nan")
    state["_extra_state"]["steps"] = "1"
    del state["_extra_state"]["optimizers"]["optimizer"]["state"][0]["momentum_buffer"]
    state["_extra_state"]["optimizers"]["optimizer"]["state"][0]["unknown"] = 1
    with pytest.raises(UsageError) as caught:
        adapter.load_state_dict(state)
    assert "model.0.weight: some values are NaN or infinite" in str(caught.value)
    assert "_extra_state.steps: expected 1, found '1'" in str(caught.value)
    assert "optimizer.state.0.momentum_buffer: expected (4,), found nothing" in str(caught.value)


@pytest.mark.parametrize("method", driftlaw.list_methods())
@pytest.mark.parametrize("count", [6, 40])
def test_states_of_every_method_can_be_loaded_by_new_and_used_adapters(method, count):
    from driftlaw.testing.fixtures import SyntheticDataset

    def make():
        return driftlaw.adapt(tiny_model(), method, train_data=SyntheticDataset())

    torch.manual_seed(0)
    adapter, used = make(), make()
    fresh = adapter.state_dict()
    for number in range(3):
        adapter(make_images(number, count=count))
        used(make_images(number, count=count))
    make().load_state_dict(adapter.state_dict())
    used.load_state_dict(fresh)
    used.load_state_dict(adapter.state_dict())
    assert not differences(state_of(adapter), state_of(used))
