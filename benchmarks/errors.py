"""The online error of the plain references beside ours on the same stream, as one JSON document.

python benchmarks/errors.py embedded --limit 400 --seed 1
python benchmarks/errors.py cifar10-c --device cuda --variant 'law preset=cifar10-c+fast'

Rates and weights are the preset's. Ours run as they come on the device, and in float32; ``--variant`` adds others.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import driftlaw
from driftlaw.bench.variants import Variant, load_plain, parse_variant
from driftlaw.contract import Stream
from driftlaw.probes import as_input, environment, pick_device
from driftlaw.settings import merge, read_preset

PLAIN_SETTINGS = {"tent": ("learning_rate",), "law": ("learning_rate", "tau", "consistency_weight")}


def error_of(step: Callable[[Tensor], Tensor], stream: Stream, device: torch.device, ours: bool) -> float:
    """Return the mean over domains of the error in per cent, each image answered when it arrived."""
    wrong: dict[tuple[str, int], list[int]] = {}
    for batch in stream:
        images = as_input(batch.images, device) if ours else batch.images.to(device)
        found = step(images).argmax(dim=1).cpu() != batch.labels
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
    """Return the errors of the plain references and of ours."""
    device, preset = pick_device(arguments.device), read_preset(arguments.preset)
    options = {"limit": arguments.limit} if arguments.limit else {}
    rows = []
    for method in arguments.methods.split(","):
        variants = [Variant(f"{method}, float32", method, {"precision": "float32", "capture": "off"})]
        variants += [Variant(method, method)]
        variants += [own for text in arguments.variant if (own := parse_variant(text)).method == method]
        steps = {f"plain {method}": (plain_step(method, preset, arguments.seed, device), False)}
        steps |= {own.label: (our_step(own, preset, arguments.seed, device), True) for own in variants}
        for label, (step, ours) in steps.items():
            stream = driftlaw.make_stream(arguments.preset, **options)
            rows.append({"label": label, "method": method, "error": error_of(step, stream, device, ours)})
            print(f"{label}: {rows[-1]['error']:.2f} %", file=sys.stderr)
    return {"bench": "errors", "preset": arguments.preset, "seed": arguments.seed, "rows": rows, **environment(device)}


def main() -> None:
    """Read the command line, compare, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("preset")
    parser.add_argument("--methods", default="tent,law")
    parser.add_argument("--variant", action="append", default=[], help="'LABEL: METHOD key=value'; repeatable")
    parser.add_argument("--limit", type=int, default=None, help="images a domain")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    print(json.dumps(compare(parser.parse_args())))


if __name__ == "__main__":
    main()
