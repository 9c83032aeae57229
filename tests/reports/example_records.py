"""Synthetic run records for tests, with a known number of wrong predictions per batch."""

import gzip
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from driftlaw.records import RunRecord, dump_line

CORRUPTIONS = [
    *("gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    *("snow", "frost", "fog", "brightness", "contrast", "elastic_transform", "pixelate", "jpeg_compression"),
]
TITLES = {"source": "Source", "norm": "BN-1", "tent": "TENT", "law": "LAW", "rmt": "RMT"}
FORWARD_PASSES = {"source": 1.0, "norm": 1.0, "tent": 2.0, "law": 8.0, "rmt": 12.0}


def make_record(
    method: str = "law",
    errors: Mapping[str, float] | Sequence[float] = (20.0,) * 15,
    *,
    seed: int = 1,
    batches_per_domain: int = 2,
    batch_size: int = 100,
    settings: Mapping[str, Any] | None = None,
    severities: Sequence[int] = (5,),
    finished: bool = True,
    batches_done: int | None = None,
    layers: Sequence[str] = ("conv.weight", "stages.0.norm.weight", "stages.1.norm.weight"),
    header: Mapping[str, Any] | None = None,
    stream: Mapping[str, Any] | None = None,
    path: Path | None = None,
    jitter: float = 0.0,
) -> RunRecord:
    """Return a run in which every batch of a domain has the error of that domain, rounded to whole images.

    Args:
        method: Name of the method.
        errors: Error in percent per domain; a mapping names its own domains.
        seed: Seed of the run.
        batches_per_domain: Batches per segment.
        batch_size: Images per batch.
        settings: Settings of the method.
        severities: Severities of every domain, in order.
        finished: False for a run without a closing line.
        batches_done: Number of batches of an unfinished run.
        layers: Layer names of the diagnostic ``layer_weights`` of LAW.
        header: Fields that replace those of the header.
        stream: Fields that replace those of the stream.
        path: Path of the record.
        jitter: Standard deviation of the error per batch, in percent.
    """
    by_domain = dict(errors) if isinstance(errors, Mapping) else dict(zip(CORRUPTIONS, errors, strict=False))
    generator = random.Random(f"{method} {seed}")
    lines: list[dict[str, Any]] = []
    for segment, (name, severity) in enumerate((name, level) for name in by_domain for level in severities):
        for _ in range(batches_per_domain):
            error = by_domain[name] * severity / max(severities) + generator.gauss(0.0, 1.0) * jitter
            lines.append(_batch_line(len(lines), segment, name, severity, batch_size, error))
            if method == "law":
                lines[-1]["facts"]["layer_weights"] = _weights(layers, len(lines), generator)
            lines[-1]["timing"] = {"seconds": 0.05 * FORWARD_PASSES.get(method, 1.0)}
    head = _header(method, seed, settings or {}, list(by_domain), batch_size, batches_per_domain, layers, len(lines))
    head["stream"].update({"severity": max(severities), **(stream or {})})
    head.update(header or {})
    cost = {"step_flops_per_image": 54_000_000 * FORWARD_PASSES.get(method, 1.0), "forward_flops_per_image": 54_000_000}
    lines[0]["cost"] = cost
    record = RunRecord(head, lines[: batches_done if not finished else None], None, path)
    return RunRecord(head, lines, _closing_line(record, cost), path) if finished else record


def in_rounds(record: RunRecord, rounds: Sequence[int]) -> RunRecord:
    """Return the run with the given round per segment."""
    for line in record.batches:
        line["domain"]["round"] = rounds[line["segment"]]
    record.header["stream"].update(schedule="recurring", rounds=len(set(rounds)))
    return record


def add_diagnostics(record: RunRecord, *, every: int = 1) -> RunRecord:
    """Return the run with diagnostics that need no labels; those that are expensive only on every n-th batch."""
    for number, line in enumerate(record.batches):
        line["facts"] |= {"entropy": 0.5, "predicted_classes": 3, "class_shares": [0.2, 0.7, 0.1]}
        if number % every == 0:
            distances = [round(0.01 * (number + 1), 4), round(0.01 * (number + 3), 4)]
            agreement = 0.8 if number < len(record.batches) / 2 else 0.6
            line["facts"] |= {"source_agreement": agreement, "layer_distance": distances}
    record.header["fact_labels"] = {**record.header["fact_labels"], "layer_distance": ["conv.weight", "norm.weight"]}
    return record


def without_labels(record: RunRecord) -> RunRecord:
    """Return the run as it is recorded for a stream without labels."""
    for line in record.batches:
        line["wrong"] = None
    if record.closing:
        record.closing.update(mean_error=None, error_by_domain={})
    return record


def write_record(record: RunRecord, path: Path) -> Path:
    """Write a record as JSON Lines, compressed if the name ends with .gz."""
    lines = [record.header, *record.batches, *([record.closing] if record.closing else [])]
    data = b"".join(dump_line(line) for line in lines)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return path


def _batch_line(number: int, segment: int, name: str, severity: int, images: int, error: float) -> dict[str, Any]:
    wrong = min(images, max(0, round(images * error / 100.0)))
    domain = {"name": name, "severity": severity, "round": 0}
    return {"batch": number, "segment": segment, "domain": domain, "images": images, "wrong": wrong, "facts": {}}


def _weights(layers: Sequence[str], step: int, generator: random.Random) -> list[float]:
    """Return layer weights of which a few are large and most are small, as those of LAW."""
    raw = [
        (0.02 + 0.6 / (1 + index % 9) ** 2) * (1 + step / 400) * generator.uniform(0.9, 1.1)
        for index, _ in enumerate(layers)
    ]
    lowest, highest = min(raw), max(raw)
    return [round((value - lowest) / (highest - lowest + 1e-8), 4) for value in raw]


def _header(
    method: str,
    seed: int,
    settings: Mapping[str, Any],
    domains: list[str],
    batch_size: int,
    batches_per_domain: int,
    layers: Sequence[str],
    batches: int,
) -> dict[str, Any]:
    return {
        "format": "driftlaw-run-1",
        "driftlaw": "0.1.0",
        "versions": {"python": "3.11.7", "torch": "2.13.0", "numpy": "2.4.6"},
        "commit": "abc1234",
        "device": {"type": "cpu", "name": "An Example CPU", "threads": 2},
        "seed": seed,
        "method": method,
        "title": TITLES.get(method, method),
        "needs_source": method == "rmt",
        "settings": dict(settings),
        "reset_on": "never",
        "stream": {
            "dataset": {
                "name": "cifar10-embedded",
                "split": "test",
                "count": 2000,
                "origin": "package",
                "sha256": "5" * 64,
            },
            "schedule": "continual",
            "order": "shuffled",
            "severity": 5,
            "rounds": 1,
            "corruptions": domains,
            "batch_size": batch_size,
            "images_per_domain": batch_size * batches_per_domain,
            "seed": seed,
            "corruption_seed": 0,
            "pixels": "generated",
        },
        "stream_sha256": "e" * 64,
        "model": {"name": "wrn_16_1", "weights": "wrn_16_1-cifar10", "parameters": 175066, "sha256": "d" * 64},
        "fact_labels": {"layer_weights": list(layers)} if method == "law" else {},
        "batches": batches,
        "timing": {"started": "2026-11-15T06:00:00Z"},
    }


def _closing_line(record: RunRecord, cost: dict[str, Any]) -> dict[str, Any]:
    seconds = sum(line["timing"]["seconds"] for line in record.batches)
    return {
        "closing": True,
        "mean_error": record.mean_error,
        "error_by_domain": record.error_by_domain,
        "cost": cost,
        "timing": {"seconds": seconds, "seconds_per_step": record.seconds_per_step, "peak_bytes": 123_456_789},
    }


def with_label_maps(record: RunRecord, *, shift: int = 0) -> RunRecord:
    """Return the run with label maps of 1,000 pixels per batch and three classes, of which the last never occurs."""
    for line in record.batches:
        correct = 1000 - 10 * line["wrong"] - shift
        line |= {"pixels": 1000, "wrong": 1000 - correct}
        line["iou"] = {"intersection": [correct // 2, correct // 2, 0], "union": [1000 - correct // 2, 500, 0]}
    record.header["stream"]["dataset"]["class_names"] = ["road", "sky", "train"]
    if record.closing is not None:
        record.closing.update(mean_error=record.mean_error, **record.iou_summary())
    return record
