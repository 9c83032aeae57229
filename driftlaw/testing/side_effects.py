"""Checks that a method changes nothing it should not: the caller's model and images, global random state, gradients."""

import copy
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from driftlaw.evaluation import run
from driftlaw.testing.expect import expect, expect_none, expect_same
from driftlaw.testing.fixtures import MethodUnderTest, TinyStream, make_images, run_batches
from driftlaw.testing.snapshots import attributes_of, differences, same, state_of


def input_and_model_are_unchanged(method: MethodUnderTest) -> None:
    """The images and the caller's model (values, gradients, modes, requires_grad) are not changed."""
    model = method.model().train()
    weight, bias = list(model.parameters())[-2:]
    bias.requires_grad_(False)
    weight.grad = torch.ones_like(weight)
    before = state_of(model) | {"gradients": _gradients(model)}
    images = make_images().contiguous(memory_format=torch.channels_last)  # this layout is passed on without a copy
    original = images.clone()
    adapter = method.adapter(model)
    for _ in range(3):
        adapter(images)
    adapter.predict(images)
    adapter.reset()
    expect(same(images, original) and not images.requires_grad, "The caller's images were changed.")
    tracked = make_images().requires_grad_(True)
    adapter(tracked)
    expect(tracked.grad is None, "A step left a gradient on the caller's images.")
    after = state_of(model) | {"gradients": _gradients(model)}
    expect_same(before, after, "The caller's model was changed: {}.")


def seed_determines_result(method: MethodUnderTest) -> None:
    """The same seed gives the same logits and state, whatever the global random state."""
    results = []
    with _restored_global_rng():
        for number in (1, 2):
            torch.manual_seed(number)
            np.random.seed(number)
            random.seed(number)
            adapter = method.adapter(seed=3)
            results.append({"logits": run_batches(adapter, range(3)), "state": state_of(adapter)})
    reason = "With the same seed, {} depend on the global random state. Draw random numbers from self.generator."
    expect_same(results[0], results[1], reason)


def global_rng_is_untouched(method: MethodUnderTest) -> None:
    """Creating, running and resetting an adapter does not change the random state of torch, numpy or random."""
    with _restored_global_rng():
        before = _global_rng()
        adapter = method.adapter_after()
        adapter.predict(make_images())
        adapter.reset()
        changed = [name for name, state in _global_rng().items() if differences(before[name], state)]
    expect_none(changed, "The global random state of {} was changed. Draw random numbers from self.generator.")


def updates_only_declared_parameters(method: MethodUnderTest) -> None:
    """Only parameters that require grad are updated, and some are; running statistics only if declared."""
    adapter = method.adapter()
    before = state_of(adapter.model)
    run_batches(adapter, range(3))
    after = state_of(adapter.model)
    if not differences(before["saved"], after["saved"]):  # a method may update after a number of images only
        run_batches(adapter, range(3, 10))
        after = state_of(adapter.model)
    trainable = [name for name, requires_grad in before["requires_grad"].items() if requires_grad]
    changed = differences(before["saved"], after["saved"])
    statistics = _running_statistics(adapter.model) if method.kind.updates_running_stats else set()
    others = [name for name in changed if name not in trainable and name not in statistics]
    expect_none(
        others,
        "{} changed, but only parameters that require grad may change. "
        "A method that updates running statistics declares updates_running_stats = True.",
    )
    expect(
        not statistics or any(name in statistics for name in changed),
        "updates_running_stats is True, but no running statistic changed in ten steps.",
    )
    reason = "The parameters that require grad changed during the steps."
    expect_same(before["requires_grad"], after["requires_grad"], reason)
    declared = method.kind.adapts
    if declared == "nothing":
        expect_none(trainable, "adapts is 'nothing', but {} require grad.")
    else:
        expect(bool(trainable), f"adapts is '{declared}', but no parameter requires grad.")
        updated = [name for name in changed if name in trainable]
        expect(
            bool(updated),
            f"adapts is '{declared}', but no parameter changed in ten steps. If the method updates on confident "
            "images only, raise its threshold: about half of the predictions have an entropy below 0.4 · ln(classes).",
        )


def predict_has_no_side_effects(method: MethodUnderTest) -> None:
    """predict() changes no state, random generator or step count, and gives the same logits twice."""
    adapter = method.adapter_after(2)
    before = {"state": state_of(adapter), "attributes": attributes_of(adapter)}
    first, second = adapter.predict(make_images(7)), adapter.predict(make_images(7))
    after = {"state": state_of(adapter), "attributes": attributes_of(adapter)}
    expect_same(before, after, "predict() changed {}.")
    expect(same(first, second), "predict() returned different logits the second time.")


def leaves_no_gradients(method: MethodUnderTest) -> None:
    """After a step every .grad is None, on the adapter and on the caller's model."""
    model = method.model()
    adapter = method.adapter(model)
    for index in range(2):
        adapter(make_images(index))
        stale = [f"the adapter's {name}" for name, value in adapter.named_parameters() if value.grad is not None]
        stale += [f"the caller's {name}" for name, value in model.named_parameters() if value.grad is not None]
        expect_none(stale, "A step left a gradient on {}. Call zero_grad(set_to_none=True) after it.")


def run_is_reproducible(method: MethodUnderTest) -> None:
    """Two runs over the same stream write the same record, apart from timings."""
    records = [run(TinyStream(), method.adapter()) for _ in range(2)]
    first, second = (
        [{key: value for key, value in line.items() if key != "timing"} for line in record.batches]
        for record in records
    )
    expect(len(first) == len(TinyStream()), f"The record has {len(first)} batches, expected {len(TinyStream())}.")
    expect_same(first, second, "Two runs with the same seed differ in {}.")


def _gradients(model: nn.Module) -> dict[str, Any]:
    return {name: copy.deepcopy(value.grad) for name, value in model.named_parameters()}


def _running_statistics(model: nn.Module) -> set[str]:
    """Return the names of the buffers in which normalisation layers keep running statistics."""
    layers = [(path, layer) for path, layer in model.named_modules() if hasattr(layer, "track_running_stats")]
    return {f"{path}.{name}".lstrip(".") for path, layer in layers for name, _ in layer.named_buffers(recurse=False)}


def _global_rng() -> dict[str, Any]:
    return {"torch": torch.get_rng_state(), "numpy": list(np.random.get_state()), "random": random.getstate()}


@contextmanager
def _restored_global_rng() -> Iterator[None]:
    """Context manager that restores the global random states on exit."""
    before = _global_rng()
    try:
        yield
    finally:
        torch.set_rng_state(before["torch"])
        np.random.set_state(tuple(before["numpy"]))
        random.setstate(before["random"])
