"""Online error of the naive implementations and of driftlaw's methods on the same stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

import driftlaw
from benchmarks.naive_law import NaiveLaw
from benchmarks.naive_tent import NaiveTent
from benchmarks.targets import Variant
from driftlaw.base import Stream, preset_settings
from driftlaw.errors import UsageError
from driftlaw.hardware import environment, to_device
from driftlaw.settings import merge, read_preset

NAIVE_SETTINGS = {"tent": ("learning_rate",), "law": ("learning_rate", "tau", "consistency_weight")}

StepFunction = Callable[[Tensor], Tensor]


def compare_errors(
    preset: str,
    *,
    device: torch.device,
    methods: Sequence[str] = ("tent", "law"),
    variants: Sequence[Variant] = (),
    seeds: Sequence[int] = (1,),
    limit: int | None = None,
    on_progress: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Run the naive implementations and driftlaw's methods on a preset's stream and return their errors.

    Learning rates, other settings and weights are the preset's. driftlaw's methods run with their defaults and in
    float32.

    Args:
        preset: name of the preset.
        device: device to run on.
        methods: ``tent``, ``law`` or both.
        variants: further variants of these methods.
        seeds: one run per seed.
        limit: maximum number of images per domain.
        on_progress: called with the error of every finished run.

    Returns:
        A record: ``rows`` with the mean error and the error per seed of every target, and the device.
    """
    if other := [method for method in methods if method not in NAIVE_SETTINGS]:
        raise UsageError(f"No naive implementation of {', '.join(other)}. Use --methods tent, law or tent,law.")
    settings = read_preset(preset)
    options = {"limit": limit} if limit else {}
    errors: dict[str, list[float]] = {}
    stream = None
    for seed in seeds:
        stream = driftlaw.make_stream(preset, device=device, like=stream, seed=seed, **options)
        for label, step, is_adapter in _targets(methods, variants, settings, seed, device):
            errors.setdefault(label, []).append(_online_error(step, stream, device, is_adapter))
            on_progress(f"{label}, seed {seed}: {errors[label][-1]:.2f} %")
    rows = [{"label": label, "error": fmean(values), "by_seed": values} for label, values in errors.items()]
    protocol = {"preset": preset, "limit": limit, "seeds": ",".join(map(str, seeds))}
    return {"bench": "errors", **protocol, "rows": rows, **environment(device)}


def _targets(
    methods: Sequence[str], variants: Sequence[Variant], preset: dict[str, Any], seed: int, device: torch.device
) -> Iterator[tuple[str, StepFunction, bool]]:
    """Yield (label, step, True for a method of driftlaw), each created when it is needed."""
    for method in methods:
        yield f"naive {method}", _naive_step(method, preset, seed, device), False
        defaults = [Variant(f"{method}, float32", method, {"precision": "float32", "capture": "off"})]
        defaults += [Variant(method, method)]
        for variant in [*defaults, *(variant for variant in variants if variant.method == method)]:
            yield variant.label, _adapter_step(variant, preset, seed, device), True


def _naive_step(method: str, preset: dict[str, Any], seed: int, device: torch.device) -> StepFunction:
    given = preset.get("methods", {}).get(method, {})
    settings = {name: given[name] for name in NAIVE_SETTINGS[method] if name in given}
    model = driftlaw.load_model(preset["model"]["weights"]).to(device)
    if method == "law":
        return NaiveLaw(model, seed=seed, **settings).step
    return NaiveTent(model, **settings).step


def _adapter_step(variant: Variant, preset: dict[str, Any], seed: int, device: torch.device) -> StepFunction:
    """Return a method of driftlaw: settings of the stream's preset, then of the variant's preset, then its own."""
    below = preset_settings(preset, variant.method)
    above = preset_settings(read_preset(variant.preset), variant.method) if variant.preset else {}
    model = driftlaw.load_model(preset["model"]["weights"]).to(device)
    settings = {"statistics": "batch"} | merge(merge(below, above), variant.settings)  # as the naive implementations
    return driftlaw.adapt(model, variant.method, seed=seed, **settings)


def _online_error(step: StepFunction, stream: Stream, device: torch.device, is_adapter: bool) -> float:
    """Return the error in per cent, averaged over domains; each image is predicted once, when it arrives."""
    counts: dict[tuple[str, int], list[int]] = {}
    for batch in stream:
        images = to_device(batch.images, device) if is_adapter else batch.images.to(device)
        wrong = step(images).argmax(dim=1).cpu() != batch.labels.cpu()
        domain = counts.setdefault((batch.domain.name, batch.domain.severity), [0, 0])
        domain[0] += int(wrong.sum())
        domain[1] += len(wrong)
    return 100 * sum(wrong / images for wrong, images in counts.values()) / len(counts)
