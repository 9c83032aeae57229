"""Checks of a method's outputs: metadata, logits, diagnostics, and errors for input it cannot process."""

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from driftlaw.base import DIAGNOSTICS, Adapter, StepOutput
from driftlaw.errors import DriftlawWarning, UsageError
from driftlaw.testing.expect import expect, expect_none, expect_same
from driftlaw.testing.fixtures import (
    BATCH,
    CLASSES,
    MethodUnderTest,
    make_images,
    model_without_norm_layers,
    run_batches,
)
from driftlaw.testing.snapshots import same, state_of


def declares_metadata(method: MethodUnderTest) -> None:
    """The class declares name, title and adapts, and its settings are immutable and have defaults."""
    kind = method.kind
    for attribute in ("name", "title", "adapts"):
        value = getattr(kind, attribute, None)
        expect(isinstance(value, str) and value != "", f'The class does not declare {attribute} = "…".')
    required = [name for name, field in kind.Config.model_fields.items() if field.is_required()]
    expect(not required, f"These settings have no default: {', '.join(required)}.")
    expect(bool(kind.Config.model_config.get("frozen")), "Config is mutable. Derive it from driftlaw's Settings.")


def logits_and_diagnostics_are_valid(method: MethodUnderTest) -> None:
    """Logits have the model's shape and dtype, are finite and detached; diagnostics are numbers or labelled vectors."""
    adapter = method.adapter()
    for index in range(3):
        output = adapter.step(make_images(index))
        expect(isinstance(output, StepOutput), f"update() returned a {type(output).__name__}, expected a StepOutput.")
        # The adapter replaced logits that were not finite.
        expect("not finite" not in adapter._warned, "Logits contain NaN or infinite values.")
        _expect_logits(output.logits, method.logits_shape(BATCH))
        _expect_diagnostics(adapter, output)
    _expect_logits(adapter(make_images(3)), method.logits_shape(BATCH))
    _expect_logits(adapter.predict(make_images(3)), method.logits_shape(BATCH))


def predicts_before_update(method: MethodUnderTest) -> None:
    """The logits of a step are from before its update, unless the class declares predicts_before_update = False."""
    if not getattr(method.kind, "predicts_before_update", True):
        return
    adapter, images = method.adapter_after(1), make_images(1)
    saved = state_of(adapter)["saved"]
    predicted = adapter.predict(images)
    logits = adapter(images)
    if torch.allclose(logits, predicted, rtol=1e-4, atol=1e-5):
        return
    # A method may predict with more than one pass, as CoTTA does; then its logits must not depend on the step size.
    if "learning_rate" in type(method.config).model_fields:
        other = method.adapter(config=method.config.model_copy(update={"learning_rate": 1e-30}))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DriftlawWarning)  # that the setting differs
            other.load_state_dict(saved)
        if same(logits, other(images)):
            return
    expect(
        False,
        "The logits of a step are from after its update. Return the logits that were computed before the update, "
        "or declare predicts_before_update = False.",
    )


def independent_of_grad_and_train_mode(method: MethodUnderTest) -> None:
    """Logits and state are the same under no_grad and inference_mode, and after .eval() and .train()."""
    expected = _steps_within(nullcontext(), method.adapter())
    results = {
        "under no_grad": _steps_within(torch.no_grad(), method.adapter()),
        "under inference_mode": _steps_within(torch.inference_mode(), method.adapter()),
        "after .eval()": _steps_within(nullcontext(), method.adapter().eval()),
        "after .train()": _steps_within(nullcontext(), method.adapter().train()),
    }
    for name, result in results.items():
        expect_same(expected, result, f"Results differ {name}: {{}}.")


def single_image_works_or_is_rejected(method: MethodUnderTest) -> None:
    """A batch of one image is processed, or rejected with a UsageError that explains why and changes nothing."""
    adapter = method.adapter()
    before = state_of(adapter)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DriftlawWarning)  # that statistics of one image are poor
            logits = adapter(make_images(count=1))
    except UsageError as error:
        expect(bool(str(error)), "A batch of one image was rejected with an empty message.")
        expect_same(before, state_of(adapter), "A batch of one image was rejected, but changed {}.")
    else:
        _expect_logits(logits, method.logits_shape(1))


def model_without_norm_layers_works_or_is_rejected(method: MethodUnderTest) -> None:
    """A model without normalisation layers is adapted, or rejected with a UsageError that explains why."""
    try:
        results = run_batches(method.adapter(model_without_norm_layers()), range(2))
    except UsageError as error:
        expect(bool(str(error)), "A model without normalisation layers was rejected with an empty message.")
    else:
        for logits in results:
            _expect_logits(logits, (BATCH, CLASSES))


def rejects_invalid_input(method: MethodUnderTest) -> None:
    """Invalid input (integers, NaN, 0 to 255, one image, empty, no tensor) raises a UsageError and changes nothing."""
    adapter = method.adapter_after(1)
    before = state_of(adapter)
    for name, images in _invalid_inputs().items():
        for call in (adapter.step, adapter.predict):
            outcome = _outcome(call, images)
            expect(outcome == "UsageError", f"{call.__name__}() with {name}: {outcome}, expected a UsageError.")
        expect_same(before, state_of(adapter), f"Rejecting {name} changed {{}}.")


def supports_float64(method: MethodUnderTest) -> None:
    """A float64 model is adapted in float64."""
    adapter, shape = method.adapter(method.model().double()), method.logits_shape(BATCH)
    for index in range(2):
        _expect_logits(adapter(make_images(index, dtype=torch.float64)), shape, torch.float64)
    changed = [name for name, value in adapter.model.named_parameters() if value.dtype != torch.float64]
    expect_none(changed, "Parameters of a float64 model changed their dtype: {}.")


def _steps_within(context: AbstractContextManager[Any], adapter: Adapter) -> dict[str, Any]:
    """Run two batches inside the context and one outside, and return the logits and the final state."""
    with context:
        logits = [value.detach() for value in run_batches(adapter, range(2))]
    return {"logits": logits + run_batches(adapter, range(2, 3)), "state": state_of(adapter)}


def _expect_logits(logits: Tensor, expected: tuple[int, ...], dtype: torch.dtype = torch.float32) -> None:
    expect(isinstance(logits, Tensor), f"The result is a {type(logits).__name__}, expected a tensor of logits.")
    shape = tuple(logits.shape)
    expect(shape == expected, f"Logits have shape {shape}, expected {expected}, as those of the model.")
    expect(logits.dtype == dtype, f"Logits are {logits.dtype}, expected the model's dtype {dtype}.")
    expect(not logits.requires_grad, "Logits require grad. Detach them.")
    expect(bool(logits.isfinite().all()), "Logits contain NaN or infinite values.")


def _expect_diagnostics(adapter: Adapter, output: StepOutput) -> None:
    labels = adapter.diagnostic_labels()
    for name, value in output.diagnostics.items():
        values = torch.as_tensor(value)
        expect(values.ndim <= 1, f"Diagnostic '{name}' has shape {tuple(values.shape)}, expected a number or a vector.")
        expect(not values.requires_grad, f"Diagnostic '{name}' requires grad. Detach it.")
        expect(bool(values.isfinite().all()), f"Diagnostic '{name}' contains NaN or infinite values.")
        expected = len(labels.get(name, []))
        if (values.ndim and name not in DIAGNOSTICS) or expected:
            expect(
                values.numel() == expected,
                f"Diagnostic '{name}' has {values.numel()} entries, but diagnostic_labels() names {expected}.",
            )


def _outcome(call: Callable[[Any], Any], images: Any) -> str:
    try:
        call(images)
    except UsageError:
        return "UsageError"
    except Exception as error:  # a method may raise anything for input it does not expect
        return f"{type(error).__name__} ({error})"
    return "no error"


def _invalid_inputs() -> dict[str, Any]:
    images = make_images()
    with_nan = images.clone()
    with_nan[0, 0, 0, 0] = torch.nan
    return {
        "int64 images": (images * 255).to(torch.int64),
        "images that contain NaN": with_nan,
        "images in [0, 255]": images * 255,
        "a single image (c, h, w)": images[0],
        "an empty batch": images[:0],
        "a list": images.tolist(),
    }
