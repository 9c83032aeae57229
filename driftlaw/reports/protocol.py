"""Protocol of a run: what must agree for two runs to be comparable, and its description in words."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from driftlaw.records import RunRecord
from driftlaw.reports.format import counted, listed, value_text

_DESCRIBED_KEYS = {
    *("dataset", "corruptions", "images_per_domain", "limit", "batch_size", "seed", "corruption_seed", "pixels"),
    *("schedule", "order", "concentration", "severity", "rounds", "archive"),
}
_RESETS = {"never": "never", "domain": "to the source model at every domain change"}


@dataclass(frozen=True)
class Protocol:
    """Stream, model and reset rule that all runs of a table share.

    Attributes:
        key: Hash of everything that must agree.
        name: Short name for headings.
        items: Description as (name, value) pairs in reading order.
    """

    key: str
    name: str
    items: tuple[tuple[str, str], ...]

    @property
    def line(self) -> str:
        """The description on one line."""
        return " · ".join(f"{name}: {value}" for name, value in self.items)


def protocol_key(record: RunRecord) -> str:
    """Return a hash of the stream without its seed, the weights of the model, and the reset rule.

    Images and archives count by their sha256, not by where they are stored.
    """
    stream = {name: value for name, value in record.header["stream"].items() if name != "seed"}
    for name in ("dataset", "archive"):
        if isinstance(stream.get(name), Mapping) and stream[name].get("sha256"):
            stream[name] = {"sha256": stream[name]["sha256"], "name": stream["dataset"].get("name")}
    shared = [stream, record.header["model"].get("sha256"), record.header["reset_on"]]
    return hashlib.sha256(json.dumps(shared, sort_keys=True).encode()).hexdigest()


def describe_protocol(records: Sequence[RunRecord]) -> Protocol:
    """Return the protocol of records with the same :func:`protocol_key`."""
    headers = [record.header for record in records]
    stream, model, reset_on = headers[0]["stream"], headers[0]["model"], headers[0]["reset_on"]
    dataset, datasets = stream["dataset"], [header["stream"]["dataset"] for header in headers]
    images, parameters = dataset.get("count"), model.get("parameters")
    software = {f"driftlaw {header['driftlaw']}{_torch_version(header)}" for header in headers}
    items = {
        "dataset": _with_details(
            f"{dataset['name']} {dataset.get('split') or ''}".strip(),
            counted(images, "image") if images else "",
            _origins(datasets),
            _short_hash(dataset),
        ),
        "model": _with_details(
            str(model["name"]),
            counted(parameters, "parameter") if parameters else "",
            f"weights {model['weights']}" if model.get("weights") else "",
            _short_hash(model),
        ),
        "stream": _describe_stream(stream, severities(records)),
        "reset": _RESETS.get(reset_on, value_text(reset_on)),
        "pixels": _describe_pixels(stream),
        "precision": listed(sorted({str(record.execution.get("precision", "not recorded")) for record in records})),
        **{
            name.replace("_", " "): value_text(value)
            for name, value in sorted(stream.items())
            if name not in _DESCRIBED_KEYS and value is not None
        },
        "seeds": listed(sorted({record.seed for record in records})),
        "device": listed(sorted(set(map(device_name, records)))),
        "software": listed(sorted(software)),
    }
    name = f"{dataset['name']} · {stream['schedule']} · {model['name']}"
    return Protocol(protocol_key(records[0]), name, tuple((name, value) for name, value in items.items() if value))


def severities(records: Sequence[RunRecord]) -> tuple[int, ...]:
    """Return the severities that occur, ascending, without 0 (clean images)."""
    return tuple(sorted({segment.severity for record in records for segment in record.segments} - {0}))


def describe_device(device: Mapping[str, Any]) -> str:
    """Return the name of a device from a record header, for a CPU with its number of threads."""
    name = str(device.get("name") or device.get("type") or "unknown")
    threads = device.get("threads") if device.get("type") == "cpu" else None
    return f"{name} ({counted(threads, 'thread')})" if threads else name


def device_name(record: RunRecord) -> str:
    """Return the name of the device of a run."""
    return describe_device(record.header["device"])


def _torch_version(header: Mapping[str, Any]) -> str:
    version = header.get("versions", {}).get("torch")
    return f" with torch {version}" if version else ""


def _with_details(name: str, *details: str) -> str:
    known = [detail for detail in details if detail]
    return f"{name} ({listed(known)})" if known else name


def _origins(items: Iterable[Mapping[str, Any]]) -> str:
    return " / ".join(sorted({str(item["origin"]) for item in items if item.get("origin")}))


def _short_hash(item: Mapping[str, Any]) -> str:
    return f"sha256 {item['sha256'][:8]}" if item.get("sha256") else ""


def _describe_stream(stream: Mapping[str, Any], levels: Sequence[int]) -> str:
    severity, rounds, order, images, size = map(
        stream.get, ("severity", "rounds", "order", "images_per_domain", "batch_size")
    )
    clean = list(stream.get("corruptions") or []) == ["clean"]
    one_severity = f"severity {value_text(severity)}" if severity is not None and not clean else ""
    corruptions = counted(len(stream["corruptions"]), "corruption") if stream.get("corruptions") else ""
    if order == "dirichlet" and stream.get("concentration") is not None:
        order = f"dirichlet order with concentration {value_text(stream['concentration'])}"
    parts = [
        str(stream["schedule"]),
        f"severities {levels[0]} to {levels[-1]}" if len(levels) > 1 else one_severity,
        f"{rounds} rounds" if rounds not in (None, 1) else "",
        "not corrupted" if clean else corruptions,
        f"{counted(images, 'image')} per domain" if images else "",
        f"batch size {size}" if size else "",
        value_text(order) if order else "",
    ]
    return listed([part for part in parts if part])


def _describe_pixels(stream: Mapping[str, Any]) -> str:
    archive, seed = stream.get("archive"), stream.get("corruption_seed")
    if isinstance(archive, Mapping):
        return _with_details("from an archive", _origins([archive]), _short_hash(archive))
    if not stream.get("pixels") or list(stream.get("corruptions") or []) == ["clean"]:
        return ""
    return _with_details(str(stream["pixels"]), f"corruption seed {seed}" if seed is not None else "")
