"""Checks of what a method must leave alone: the caller's things, the world's randomness, what does not learn."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from driftlaw.evaluation import run
from driftlaw.testing.fixtures import Subject, TinyStream, expect, make_images, take_steps, tiny_model
from driftlaw.testing.snapshots import attributes_of, differences, moved, named, network_of, same, state_of


def input_and_the_callers_model_stay_as_they_were(subject: Subject) -> None:
    """Images, and the caller's parameters, buffers, gradients, modes and requires_grad, are not touched."""
    model = tiny_model().train()
    model.head.bias.requires_grad_(False)
    model.head.weight.grad = torch.ones_like(model.head.weight)
    before = network_of(model)
    images = make_images().contiguous(memory_format=torch.channels_last)  # the layout in which no copy is made
    given = images.clone()
    adapter = subject.adapter(model)
    for _ in range(3):
        adapter(images)
    adapter.predict(images)
    adapter.reset()
    expect(same(images, given) and not images.requires_grad, "the images that were handed in have changed")
    tracked = make_images().requires_grad_(True)
    adapter(tracked)
    expect(tracked.grad is None, "a gradient is left on images that require one")
    changed = differences(before, network_of(model))
    expect(not changed, f"the caller's model has changed: {named(changed)}")


def the_seed_alone_decides(subject: Subject) -> None:
    """The same seed gives the same answers and state, whatever the global random state."""
    paths = []
    with _world_left_alone():
        for number in (1, 2):
            _seed_the_world(number)
            adapter = subject.adapter(seed=3)
            paths.append({"answers": take_steps(adapter, range(3)), "state": state_of(adapter)})
    differing = differences(*paths)
    expect(not differing, f"with another global seed {named(differing)} differ: draw from self.generator")


def the_global_random_state_is_not_touched(subject: Subject) -> None:
    """Making, stepping, asking and resetting draw nothing from torch, numpy or random, and seed none of them."""
    with _world_left_alone():
        before = _world()
        adapter = subject.stepped()
        adapter.predict(make_images())
        adapter.reset()
        touched = [name for name, state in _world().items() if differences(before[name], state)]
    expect(not touched, f"the global random state of {named(touched)} has moved: draw from self.generator")


def only_what_it_says_learns_has_moved(subject: Subject) -> None:
    """Parameters that require gradients may move, and some do; the rest stays, statistics too unless it says so."""
    adapter = subject.adapter()
    before = network_of(adapter.model)
    take_steps(adapter, range(3))
    after = network_of(adapter.model)
    learning = [name for name, learns in before["learning"].items() if learns]
    changed = moved(before, after)
    statistics = _statistics(adapter.model) if subject.kind.updates_running_stats else set()
    others = [name for name in changed if name not in learning and name not in statistics]
    expect(
        not others,
        f"{named(others)} moved: expected only parameters that require gradients to move; "
        "a method that keeps running statistics going says updates_running_stats = True",
    )
    expect(
        not statistics or any(name in statistics for name in changed),
        "updates_running_stats is True, but no running statistic moved in three steps",
    )
    expect(differences(before["learning"], after["learning"]) == [], "what requires gradients changed along the way")
    says_nothing = subject.kind.adapts == "nothing"
    expect(not (says_nothing and learning), f"adapts says «nothing», but {named(learning)} require gradients")
    if not says_nothing:
        expect(bool(learning), f"adapts says «{subject.kind.adapts}», but no parameter requires gradients")
        learnt = [name for name in changed if name in learning]
        expect(bool(learnt), f"adapts says «{subject.kind.adapts}», but nothing moved in three steps")


def predict_changes_nothing(subject: Subject) -> None:
    """predict() leaves the state, the generator and the count of steps alone, and gives the same answer twice."""
    adapter = subject.stepped(2)
    before = {"state": state_of(adapter), "attributes": attributes_of(adapter)}
    first, second = adapter.predict(make_images(7)), adapter.predict(make_images(7))
    changed = differences(before, {"state": state_of(adapter), "attributes": attributes_of(adapter)})
    expect(not changed, f"predict() changes {named(changed)}")
    expect(same(first, second), "predict() gives another answer the second time")


def no_stale_gradient_is_left_behind(subject: Subject) -> None:
    """After a step every .grad is None, on the adapter and on the caller's model."""
    model = tiny_model()
    adapter = subject.adapter(model)
    for number in range(2):
        adapter(make_images(number))
        stale = [f"the adapter's {name}" for name, value in adapter.named_parameters() if value.grad is not None]
        stale += [f"the caller's {name}" for name, value in model.named_parameters() if value.grad is not None]
        expect(not stale, f"a gradient is left on {named(stale)}: zero_grad(set_to_none=True) after the step")


def a_run_gives_the_same_record_twice(subject: Subject) -> None:
    """The loop takes the method from a stream to a record of plain data, and the same record again."""
    records = [run(TinyStream(), subject.adapter()) for _ in range(2)]
    first, second = ([_untimed(line) for line in record.batches] for record in records)
    expect(len(first) == len(TinyStream()), f"{len(first)} batches in the record: expected {len(TinyStream())}")
    differing = differences(first, second)
    expect(not differing, f"two runs with the same seed differ in {named(differing)}")


def _statistics(model: nn.Module) -> set[str]:
    """Return the names of the buffers in which norm layers keep running statistics."""
    layers = [(path, layer) for path, layer in model.named_modules() if hasattr(layer, "track_running_stats")]
    return {f"{path}.{name}".lstrip(".") for path, layer in layers for name, _ in layer.named_buffers(recurse=False)}


def _untimed(line: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in line.items() if key != "timing"}


def _world() -> dict[str, Any]:
    return {"torch": torch.get_rng_state(), "numpy": list(np.random.get_state()), "random": random.getstate()}


def _seed_the_world(number: int) -> None:
    torch.manual_seed(number)
    np.random.seed(number)
    random.seed(number)


@contextmanager
def _world_left_alone() -> Iterator[None]:
    """Put the global random states back afterwards: the check must not be what moves them."""
    before = _world()
    try:
        yield
    finally:
        torch.set_rng_state(before["torch"])
        np.random.set_state(tuple(before["numpy"]))
        random.setstate(before["random"])
