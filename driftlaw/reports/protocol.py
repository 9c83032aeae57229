"""What makes runs comparable: the facts of a header that must agree within one table, and how they are told."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from driftlaw.records import RunRecord
from driftlaw.reports.format import counted, listed, value_text

_TOLD_IN_WORDS = {
    *("dataset", "corruptions", "images_per_domain", "limit", "batch_size", "seed", "corruption_seed", "pixels"),
    *("schedule", "order", "concentration", "severity", "rounds", "archive"),
}
_RESETS = {"never": "never", "domain": "to the source network at every change of domain"}


@dataclass(frozen=True)
class Protocol:
    """The stream, the network and the reset rule that a table's runs have in common.

    Attributes:
        key: a hash of everything that must agree.
        name: a few words for a heading.
        facts: what is fixed, as (what, how) pairs in the order they are told.
    """

    key: str
    name: str
    facts: tuple[tuple[str, str], ...]

    @property
    def line(self) -> str:
        """The line under a table: nobody compares what was measured in different ways."""
        return " · ".join(f"{what}: {how}" for what, how in self.facts)


def protocol_key(record: RunRecord) -> str:
    """Return a hash of the stream's recipe without its seed, the network's weights and the reset rule.

    Where images or an archive were found does not count, what they are does: their sha256.
    """
    stream = {name: value for name, value in record.header["stream"].items() if name != "seed"}
    for name in ("dataset", "archive"):
        if isinstance(stream.get(name), Mapping) and stream[name].get("sha256"):
            stream[name] = {"sha256": stream[name]["sha256"], "name": stream["dataset"].get("name")}
    agreed = [stream, record.header["model"].get("sha256"), record.header["reset_on"]]
    return hashlib.sha256(json.dumps(agreed, sort_keys=True).encode()).hexdigest()


def describe_protocol(records: Sequence[RunRecord]) -> Protocol:
    """Return the protocol of records that share a :func:`protocol_key`."""
    header = records[0].header
    stream, model = header["stream"], header["model"]
    facts = [
        ("images", _dataset(stream["dataset"], _each(record.header["stream"]["dataset"] for record in records))),
        ("network", _model(model)),
        ("stream", _stream(stream, records)),
        ("reset", _RESETS.get(header["reset_on"], value_text(header["reset_on"]))),
        ("pixels", _pixels(stream)),
        ("precision", listed(_distinct(_precision(record.header) for record in records))),
        *_untold(stream),
        ("seeds", listed(sorted({record.seed for record in records}))),
        ("device", listed(_distinct(describe_device(record.header["device"]) for record in records))),
        ("software", listed(_distinct(_software(record.header) for record in records))),
    ]
    return Protocol(protocol_key(records[0]), _name(stream, model), tuple((what, how) for what, how in facts if how))


def _name(stream: Mapping[str, Any], model: Mapping[str, Any]) -> str:
    return f"{stream['dataset']['name']} · {stream['schedule']} · {model['name']}"


def _each(datasets: Iterable[Mapping[str, Any]]) -> str:
    return " / ".join(_distinct(str(dataset["origin"]) for dataset in datasets if dataset.get("origin")))


def _distinct(values: Iterable[str]) -> list[str]:
    return sorted(set(values))


def _dataset(dataset: Mapping[str, Any], origins: str) -> str:
    split = f" {dataset['split']}" if dataset.get("split") else ""
    count = counted(dataset["count"], "image", "images") if dataset.get("count") else ""
    inner = [part for part in (count, origins, _short_hash(dataset)) if part]
    return f"{dataset['name']}{split}" + (f" ({listed(inner)})" if inner else "")


def _model(model: Mapping[str, Any]) -> str:
    parameters = counted(model["parameters"], "parameter", "parameters") if model.get("parameters") else ""
    weights = f"weights {model['weights']}" if model.get("weights") else ""
    inner = [part for part in (parameters, weights, _short_hash(model)) if part]
    return f"{model['name']}" + (f" ({listed(inner)})" if inner else "")


def _short_hash(thing: Mapping[str, Any]) -> str:
    return f"sha256 {thing['sha256'][:8]}" if thing.get("sha256") else ""


def _stream(stream: Mapping[str, Any], records: Sequence[RunRecord]) -> str:
    parts = [str(stream["schedule"]), _severity(stream, records)]
    if stream.get("rounds", 1) not in (None, 1):
        parts.append(f"{stream['rounds']} rounds")
    if stream.get("corruptions"):
        parts.append(counted(len(stream["corruptions"]), "corruption", "corruptions"))
    if stream.get("images_per_domain"):
        parts.append(f"{counted(stream['images_per_domain'], 'image', 'images')} a domain")
    if stream.get("batch_size"):
        parts.append(f"batches of {stream['batch_size']}")
    return listed([part for part in [*parts, _order(stream)] if part])


def _severity(stream: Mapping[str, Any], records: Sequence[RunRecord]) -> str:
    """What the stream went through, which for a gradual one is more than its setting says."""
    levels = severities(records)
    if len(levels) > 1:
        return f"severities {levels[0]} to {levels[-1]}"
    return f"severity {value_text(stream['severity'])}" if stream.get("severity") is not None else ""


def severities(records: Sequence[RunRecord]) -> tuple[int, ...]:
    """Return the severities that occur, rising; 0 stands for clean images and is none."""
    return tuple(sorted({segment.severity for record in records for segment in record.segments} - {0}))


def _order(stream: Mapping[str, Any]) -> str:
    order = value_text(stream.get("order") or "")
    concentrated = order == "dirichlet" and stream.get("concentration") is not None
    return f"{order} with concentration {value_text(stream['concentration'])}" if concentrated else order


def _pixels(stream: Mapping[str, Any]) -> str:
    archive = stream.get("archive")
    if isinstance(archive, Mapping):
        return f"from an archive ({listed([part for part in (_each([archive]), _short_hash(archive)) if part])})"
    if not stream.get("pixels"):
        return ""
    seed = stream.get("corruption_seed")
    return f"{stream['pixels']}" + (f" (corruption seed {seed})" if seed is not None else "")


def _untold(stream: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Facts of a recipe that this page does not know are told all the same, under their own names."""
    rest = {name: value for name, value in stream.items() if name not in _TOLD_IN_WORDS and value is not None}
    return [(name.replace("_", " "), value_text(value)) for name, value in sorted(rest.items())]


def describe_device(device: Mapping[str, Any]) -> str:
    """Return the name of a record's device, of a CPU with its threads."""
    name = str(device.get("name") or device.get("type") or "unknown")
    threads = device.get("threads") if device.get("type") == "cpu" else None
    return f"{name} ({counted(threads, 'thread', 'threads')})" if threads else name


def device_name(record: RunRecord) -> str:
    """Return the name of the device that a run ran on."""
    return describe_device(record.header["device"])


def _precision(header: Mapping[str, Any]) -> str:
    """What a step computes in; the first records do not tell."""
    return str(header["execution"]["precision"]) if "execution" in header else "not recorded"


def _software(header: Mapping[str, Any]) -> str:
    torch = header.get("versions", {}).get("torch")
    return f"driftlaw {header['driftlaw']}" + (f" with torch {torch}" if torch else "")
