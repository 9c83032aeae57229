"""The online error of the plain references beside ours on the same stream, as one JSON document.

python benchmarks/errors.py embedded --limit 400 --seeds 1,2
python benchmarks/errors.py cifar10-c --seeds 1,2,3 --device cuda --variant 'fast: law preset=fast'

Rates and weights are the preset's. Ours run as they come on the device, and in float32; ``--variant`` adds others.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import driftlaw
from benchmarks.variants import Variant, load_plain, parse_variant
from driftlaw.base import Stream
from driftlaw.hardware import environment, pick_device, to_device
from driftlaw.settings import merge, read_preset

PLAIN_SETTINGS = {"tent": ("learning_rate",), "law": ("learning_rate", "tau", "consistency_weight")}


def error_of(step: Callable[[Tensor], Tensor], stream: Stream, device: torch.device, ours: bool) -> float:
    """Return the mean over domains of the error in per cent, each image answered when it arrived."""
    wrong: dict[tuple[str, int], list[int]] = {}
    for batch in stream:
        images = to_device(batch.images, device) if ours else batch.images.to(device)
        found = step(images).argmax(dim=1).cpu() != batch.labels.cpu()
        counts = wrong.setdefault((batch.domain.name, batch.domain.severity), [0, 0])
        counts[0] += int(found.sum())
        counts[1] += len(found)
    return 100 * sum(bad / all_of_them for bad, all_of_them in wrong.values()) / len(wrong)


def plain_step(method: str, preset: dict[str, Any], seed: int, device: torch.device) -> Callable[[Tensor], Tensor]:
    """Return the step of a plain reference with the rates of a preset."""
    own = preset.get("methods", {}).get(method, {})
    settings = {name: own[name] for name in PLAIN_SETTINGS[method] if name in own}
    model = driftlaw.load_model(preset["model"]["weights"]).to(device)
    if method == "law":
        return load_plain("plain_law").PlainLaw(model, seed=seed, **settings).step
    return load_plain("plain_tent").PlainTent(model, **settings).step


def our_step(variant: Variant, preset: dict[str, Any], seed: int, device: torch.device) -> Callable[[Tensor], Tensor]:
    """Return the step of one of our methods, its own preset and settings over those of the stream's preset."""
    below = preset.get("methods", {}).get(variant.method, {})
    own = read_preset(variant.preset).get("methods", {}).get(variant.method, {}) if variant.preset else {}
    model = driftlaw.load_model(preset["model"]["weights"]).to(device)
    return driftlaw.adapt(model, variant.method, seed=seed, **merge(merge(below, own), variant.settings))


def compare(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the errors of the plain references and of ours, a number a seed."""
    device, preset = pick_device(arguments.device), read_preset(arguments.preset)
    options = {"limit": arguments.limit} if arguments.limit else {}
    errors: dict[str, list[float]] = {}
    stream = None
    for seed in (int(number) for number in arguments.seeds.split(",")):
        stream = driftlaw.make_stream(arguments.preset, device=device, like=stream, seed=seed, **options)
        for label, step, ours in contenders(arguments, preset, seed, device):
            errors.setdefault(label, []).append(error_of(step, stream, device, ours))
            print(f"{label}, seed {seed}: {errors[label][-1]:.2f} %", file=sys.stderr)
    rows = [{"label": label, "error": fmean(numbers), "by_seed": numbers} for label, numbers in errors.items()]
    told = {"preset": arguments.preset, "limit": arguments.limit, "seeds": arguments.seeds}
    return {"bench": "errors", **told, "rows": rows, **environment(device)}


def contenders(
    arguments: argparse.Namespace, preset: dict[str, Any], seed: int, device: torch.device
) -> Iterator[tuple[str, Callable[[Tensor], Tensor], bool]]:
    """Yield (label, step, whether it is ours), each made when its turn comes."""
    for method in arguments.methods.split(","):
        yield f"plain {method}", plain_step(method, preset, seed, device), False
        variants = [Variant(f"{method}, float32", method, {"precision": "float32", "capture": "off"})]
        variants += [Variant(method, method)]
        variants += [own for text in arguments.variant if (own := parse_variant(text)).method == method]
        for own in variants:
            yield own.label, our_step(own, preset, seed, device), True


def read_arguments(words: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("preset")
    parser.add_argument("--methods", default="tent,law")
    parser.add_argument("--variant", action="append", default=[], help="'LABEL: METHOD key=value'; repeatable")
    parser.add_argument("--limit", type=int, default=None, help="images a domain")
    parser.add_argument("--seeds", default="1", help="such as 1,2,3")
    parser.add_argument("--device", default="auto")
    return parser.parse_args(words)


if __name__ == "__main__":
    print(json.dumps(compare(read_arguments())))
