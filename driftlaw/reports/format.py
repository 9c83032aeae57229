"""Numbers, names and units as text, the same in every format."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from driftlaw.reports.statistics import Difference

MISSING = "–"
LABELS: dict[str, Any] = tomllib.loads((Path(__file__).parent / "labels.toml").read_text(encoding="utf-8"))
"""Captions, headings and descriptions of columns."""


def short_name(domain: str) -> str:
    """Return the column heading that papers use for a domain.

    >>> short_name("jpeg_compression"), short_name("snow"), short_name("night_rain")
    ('jpeg', 'snow', 'night rain')
    """
    return str(LABELS["short_names"].get(domain, domain.replace("_", " ")))


def error_text(error: float | None) -> str:
    """Return an error in percent with one decimal, or a dash for None."""
    return MISSING if error is None else f"{error:.1f}"


def paper_text(error: float | None) -> str:
    """Return a published error with the one or two decimals that the paper prints.

    >>> paper_text(15.7), paper_text(15.74), paper_text(None)
    ('15.7', '15.74', '–')
    """
    return MISSING if error is None else f"{error:.2f}".removesuffix("0") if error % 1 else f"{error:.1f}"


def spread_text(spread: float | None) -> str:
    """Return a standard deviation with its sign, or nothing for None (a single seed).

    >>> spread_text(0.0612), spread_text(None)
    (' ± 0.06', '')
    """
    return "" if spread is None else f" ± {spread:.2f}"


def difference_text(difference: float | None) -> str:
    """Return a difference in percentage points with sign; zero has no sign.

    >>> difference_text(-21.34), difference_text(0.6), difference_text(-0.01)
    ('−21.3', '+0.6', '0.0')
    """
    if difference is None:
        return MISSING
    rounded = round(difference, 1)
    return f"{rounded:+.1f}".replace("-", "−") if rounded else "0.0"


def interval_text(difference: Difference | None) -> str:
    """Return a paired difference in percentage points with its interval, or a dash for None."""
    if difference is None:
        return MISSING
    return f"{difference.mean:+.2f} [{difference.low:+.2f}, {difference.high:+.2f}]".replace("-", "−")


def flops_text(flops: float | None) -> str:
    """Return a number of floating-point operations with SI prefix.

    >>> flops_text(10.486e9), flops_text(54_300_000), flops_text(None)
    ('10.5 G', '54.3 M', '–')
    """
    return _with_unit(flops, 1000.0, ("", " k", " M", " G", " T", " P"))


def bytes_text(count: float | None) -> str:
    """Return a number of bytes in binary units.

    >>> bytes_text(123_456_789), bytes_text(None)
    ('117.7 MiB', '–')
    """
    return _with_unit(count, 1024.0, (" B", " KiB", " MiB", " GiB", " TiB"))


def _with_unit(value: float | None, base: float, units: Sequence[str]) -> str:
    if value is None:
        return MISSING
    power = 0
    while value >= base and power < len(units) - 1:
        value, power = value / base, power + 1
    return f"{value:.1f}{units[power]}" if power else f"{value:.0f}{units[0]}"


def milliseconds_text(seconds: float | None) -> str:
    """Return a duration in milliseconds with three significant digits.

    >>> milliseconds_text(0.4127), milliseconds_text(0.00512), milliseconds_text(None)
    ('413', '5.12', '–')
    """
    if seconds is None:
        return MISSING
    value = 1000.0 * seconds
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def passes_text(passes: float | None) -> str:
    """Return a cost in forward passes.

    >>> passes_text(7.96), passes_text(1.0)
    ('8.0 ×', '1.0 ×')
    """
    return MISSING if passes is None else f"{passes:.1f} ×"


def value_text(value: Any) -> str:
    """Return the value of a setting as in a settings file.

    >>> value_text(0.6), value_text(True), value_text("tensor"), value_text(None)
    ('0.6', 'true', 'tensor', 'none')
    """
    if isinstance(value, str):
        return value
    return "none" if value is None else json.dumps(value, ensure_ascii=False, sort_keys=True)


def dataset_title(stream: Mapping[str, Any]) -> str:
    """Return the name of a stream's images as papers write it, the name of their folder, or the recorded name.

    >>> dataset_title({"dataset": {"name": "cifar10"}, "corruptions": ["fog"]})
    'CIFAR-10-C'
    >>> dataset_title({"dataset": {"name": "folder:/data/frames"}})
    'frames'
    """
    name = str(stream["dataset"].get("path") or stream["dataset"]["name"])
    if set(stream.get("corruptions") or ()) - {"clean"}:
        name = LABELS["datasets"].get(name, name)
    return name.rstrip("/").rpartition("/")[2].removeprefix("folder:").removeprefix("shards:")


def joined(items: Sequence[str]) -> str:
    """Return items as in a sentence.

    >>> joined(["source", "BN-1", "LAW"])
    'source, BN-1 and LAW'
    """
    return " and ".join([", ".join(items[:-1]), items[-1]]) if len(items) > 1 else "".join(items)


def listed(items: Sequence[object]) -> str:
    """Return items separated by commas."""
    return ", ".join(map(str, items))


def counted(number: int, singular: str) -> str:
    """Return a number with a noun in singular or plural.

    >>> counted(1, "seed"), counted(2000, "image")
    ('1 seed', '2,000 images')
    """
    return f"{number:,} {singular}{'' if number == 1 else 's'}"
