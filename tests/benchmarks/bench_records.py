"""Small records of benchmarks, one of each kind, for tests."""

from __future__ import annotations

from typing import Any

WHERE: dict[str, Any] = {
    "versions": {"torch": "2.13.0"},
    "commit": "abc1234",
    "device": {"type": "cpu", "name": "a <fast> machine", "threads": 2},
    "left_out": [{"label": "law, fast", "why": "unknown preset 'fast'"}],
    "command": "python -m benchmarks step",
}
VARIANTS = {"forward only": "forward", "naive LAW": "plain_law", "law": "law"}
MEDIANS = {"forward only": 2.0, "naive LAW": 30.0, "law": 5.0}


def times(median: float) -> dict[str, float]:
    return {"median": median, "min": 0.9 * median, "lower_quartile": 0.95 * median, "upper_quartile": 1.1 * median}


def rows(batch_size: int = 8) -> list[dict[str, Any]]:
    return [
        {
            "model": "wrn_10_1",
            "batch_size": batch_size,
            "label": label,
            "method": method,
            "milliseconds": times(MEDIANS[label]),
            "times_faster_than_plain_law": 30.0 / MEDIANS[label],
            "times_faster_than_plain_tent": None,
            "peak_bytes": int(1e8 * MEDIANS[label]),
            "held_bytes": 10**7,
            "share_of_plain_law": MEDIANS[label] / 30.0,
            **({"settings_in_full": {}} if method == "law" else {}),
        }
        for label, method in VARIANTS.items()
    ]


def step() -> dict[str, Any]:
    return {"bench": "step", "rounds": 3, "rows": rows() + rows(16), **WHERE}


def memory() -> dict[str, Any]:
    return {"bench": "memory", "measured": "by hand", "rows": rows(), **WHERE}


def diagnostics() -> dict[str, Any]:
    entry = rows()[2] | {"numbers": 23, "without": times(5.0), "with": times(5.1), "cost": 0.02}
    return {"bench": "facts", "rows": [entry], **WHERE}


def roofline() -> dict[str, Any]:
    entry = rows()[2] | {
        "precision": "float32",
        "operations": 10**9,
        "least_bytes": 10**7,
        "floor_milliseconds": 2.5,
        "bound_by": "operations",
        "times_above_floor": 2.0,
        "matrix_operations_per_second": 4e11,
        "convolution_operations_per_second": 3e11,
        "bytes_per_second": 1e10,
    }
    return {"bench": "floor", "rule": "count and divide", "rows": [entry], **WHERE}


def scaling() -> dict[str, Any]:
    points = [{"value": size, **row} for size in (8, 16) for row in rows(size)]
    windows = [{"batches": 10 * n, "milliseconds": times(5.0), "held_bytes": 10**8} for n in (1, 2, 3)]
    growth = {"milliseconds": 1.0, "milliseconds_halves": 1.01, "held_bytes": 1.0}
    stream = {"label": "law", "method": "law", "batch_size": 8, "windows": windows, "growth": growth}
    axes = [{"axis": "batch_size", "note": "model wrn_10_1", "rows": points}]
    return {"bench": "scaling", "axes": axes, "stream": [stream], **WHERE}


RECORDS = {"step": step, "memory": memory, "facts": diagnostics, "floor": roofline, "scaling": scaling}
