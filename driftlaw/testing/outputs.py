"""Checks of what a method answers, and of what it says to what it cannot answer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from driftlaw.base import Adapter, StepOutput
from driftlaw.errors import UsageError
from driftlaw.testing.fixtures import (
    BATCH,
    CLASSES,
    Subject,
    expect,
    make_images,
    model_without_norm_layers,
    take_steps,
    tiny_model,
)
from driftlaw.testing.snapshots import differences, named, state_of


def it_says_what_it_is(subject: Subject) -> None:
    """A name, a title, what learns, and settings that all have a default."""
    kind = subject.kind
    for fact in ("name", "title", "adapts"):
        value = getattr(kind, fact, None)
        expect(isinstance(value, str) and value != "", f'the class says nothing as its {fact}: write {fact} = "…"')
    needed = [name for name, field in kind.Config.model_fields.items() if field.is_required()]
    expect(not needed, f"these settings have no default: {', '.join(needed)}")
    expect(bool(kind.Config.model_config.get("frozen")), "Config can be changed: derive it from driftlaw's Settings")


def answers_have_the_right_shape_and_are_finite(subject: Subject) -> None:
    """Logits (n, classes), finite, detached, in the model's dtype; facts are finite numbers or labelled vectors."""
    adapter = subject.adapter()
    for number in range(3):
        output = adapter.step(make_images(number))
        expect(isinstance(output, StepOutput), f"step {number} returned {type(output).__name__}: expected a StepOutput")
        _expect_answer(output.logits, BATCH, torch.float32)
        _expect_facts(adapter, output)
    _expect_answer(adapter(make_images(3)), BATCH, torch.float32)
    _expect_answer(adapter.predict(make_images(3)), BATCH, torch.float32)


def modes_around_it_change_nothing(subject: Subject) -> None:
    """The same answers and the same state under no_grad, under inference_mode, and after .eval() and .train()."""
    expected = _path(subject.adapter(), nullcontext())
    around = {
        "under no_grad": _path(subject.adapter(), torch.no_grad()),
        "under inference_mode": _path(subject.adapter(), torch.inference_mode()),
        "after .eval()": _path(subject.adapter().eval(), nullcontext()),
        "after .train()": _path(subject.adapter().train(), nullcontext()),
    }
    for name, path in around.items():
        differing = differences(expected, path)
        expect(not differing, f"{name} it does something else: {named(differing)} differ")


def a_batch_of_one_works_or_is_refused(subject: Subject) -> None:
    """One image is answered, or refused with a UsageError that gives a reason and changes nothing."""
    adapter = subject.adapter()
    before = state_of(adapter)
    try:
        answer = adapter(make_images(count=1))
    except UsageError as error:
        expect(bool(str(error)), "a batch of one is refused without a reason")
        changed = differences(before, state_of(adapter))
        expect(not changed, f"a batch of one is refused, but it changed {named(changed)}")
    else:
        _expect_answer(answer, 1, torch.float32)


def a_model_without_norm_layers_works_or_is_refused(subject: Subject) -> None:
    """A network without norm layers is adapted, or refused with a UsageError that gives a reason."""
    try:
        adapter = subject.adapter(model_without_norm_layers())
        answers = take_steps(adapter, range(2))
    except UsageError as error:
        expect(bool(str(error)), "a model without norm layers is refused without a reason")
    else:
        for answer in answers:
            _expect_answer(answer, BATCH, torch.float32)


def wrong_input_is_refused_and_changes_nothing(subject: Subject) -> None:
    """uint8, NaN, 0 to 255, a single image, an empty batch and no tensor at all: a UsageError, and nothing happened."""
    adapter = subject.stepped(1)
    before = state_of(adapter)
    for name, images in _wrong_inputs().items():
        for call in (adapter.step, adapter.predict):
            met_with = _what_happens(call, images)
            expect(met_with == "UsageError", f"{name} given to {call.__name__}: {met_with}, expected a UsageError")
        changed = differences(before, state_of(adapter))
        expect(not changed, f"{name} refused, but not without changing {named(changed)}")


def float64_models_work(subject: Subject) -> None:
    """A float64 network is adapted in float64."""
    adapter = subject.adapter(tiny_model().double())
    for number in range(2):
        _expect_answer(adapter(make_images(number, dtype=torch.float64)), BATCH, torch.float64)
    changed = [name for name, value in adapter.model.named_parameters() if value.dtype != torch.float64]
    expect(not changed, f"a float64 model's {named(changed)} became another dtype")


def _path(adapter: Adapter, surroundings: AbstractContextManager[Any]) -> dict[str, Any]:
    """Return two answers given inside the surroundings, a third from outside, and where that led."""
    with surroundings:
        answers = [answer.detach() for answer in take_steps(adapter, range(2))]
    return {"answers": answers + take_steps(adapter, range(2, 3)), "state": state_of(adapter)}


def _expect_answer(logits: Tensor, count: int, dtype: torch.dtype) -> None:
    expect(isinstance(logits, Tensor), f"the answer is a {type(logits).__name__}: expected a tensor of logits")
    shape = tuple(logits.shape)
    expect(shape == (count, CLASSES), f"logits of shape {shape}: expected {(count, CLASSES)}, one row an image")
    expect(logits.dtype == dtype, f"logits are {logits.dtype}: expected the model's {dtype}")
    expect(not logits.requires_grad, "logits carry a graph: detach them")
    expect(bool(logits.isfinite().all()), "some logits are not finite")


def _expect_facts(adapter: Adapter, output: StepOutput) -> None:
    labels = adapter.diagnostic_labels()
    for name, value in output.diagnostics.items():
        numbers = torch.as_tensor(value)
        expect(numbers.ndim <= 1, f"the fact {name} has shape {tuple(numbers.shape)}: expected a number or a vector")
        expect(not numbers.requires_grad, f"the fact {name} carries a graph: detach it")
        expect(bool(numbers.isfinite().all()), f"the fact {name} is not finite")
        wanted = len(labels.get(name, []))
        if numbers.ndim or wanted:
            found = numbers.numel()
            expect(
                found == wanted,
                f"the fact {name} has {found} entries, diagnostic_labels() names {wanted}: expected one each",
            )


def _what_happens(call: Callable[[Any], Any], images: Any) -> str:
    try:
        call(images)
    except UsageError:
        return "UsageError"
    except Exception as error:  # a method's own code may raise anything on what it did not expect
        return f"{type(error).__name__} ({error})"
    return "answered"


def _wrong_inputs() -> dict[str, Any]:
    images = make_images()
    with_nan = images.clone()
    with_nan[0, 0, 0, 0] = torch.nan
    return {
        "uint8 images": (images * 255).to(torch.uint8),
        "images with a NaN": with_nan,
        "images from 0 to 255": images * 255,
        "a single image of three dimensions": images[0],
        "an empty batch": images[:0],
        "a list": images.tolist(),
    }
