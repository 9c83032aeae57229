"""How names and numbers are written in tables, figures and pages."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from driftlaw.reports.statistics import Difference

MISSING = "–"

_OF_THE_MACHINE = {"--out", "--data-dir", "--checkpoint-seconds", "--jobs", "--workers"}
_SWITCHES = {"--json", "--quiet", "-q", "--compress", "--again"}

_SHORT = {
    "gaussian_noise": "gaussian",
    "shot_noise": "shot",
    "impulse_noise": "impulse",
    "defocus_blur": "defocus",
    "glass_blur": "glass",
    "motion_blur": "motion",
    "zoom_blur": "zoom",
    "brightness": "bright.",
    "elastic_transform": "elastic",
    "pixelate": "pixel.",
    "jpeg_compression": "jpeg",
    "speckle_noise": "speckle",
    "gaussian_blur": "gauss. blur",
}


def short_name(domain: str) -> str:
    """Return the heading that papers print over a domain's column.

    >>> short_name("jpeg_compression"), short_name("snow"), short_name("night_rain")
    ('jpeg', 'snow', 'night rain')
    """
    return _SHORT.get(domain, domain.replace("_", " "))


def error_text(error: float | None) -> str:
    """Return an error in per cent with one decimal, a dash where there is none."""
    return MISSING if error is None else f"{error:.1f}"


def paper_text(error: float | None) -> str:
    """Return a printed error with as many decimals as it was printed with, one or two.

    >>> paper_text(15.7), paper_text(15.74), paper_text(None)
    ('15.7', '15.74', '–')
    """
    return MISSING if error is None else f"{error:.2f}".removesuffix("0") if error % 1 else f"{error:.1f}"


def spread_text(spread: float | None) -> str:
    """Return the standard deviation behind its sign, nothing where there is one seed only.

    >>> spread_text(0.0612), spread_text(None)
    (' ± 0.06', '')
    """
    return "" if spread is None else f" ± {spread:.2f}"


def difference_text(difference: float | None) -> str:
    """Return a difference in points with its sign, a true minus and no signed zero.

    >>> difference_text(-21.34), difference_text(0.6), difference_text(-0.01)
    ('−21.3', '+0.6', '0.0')
    """
    if difference is None:
        return MISSING
    rounded = round(difference, 1)
    return f"{rounded:+.1f}".replace("-", "−") if rounded else "0.0"


def interval_text(difference: Difference | None) -> str:
    """Return a paired difference in points with its interval, a dash where there is none."""
    if difference is None:
        return MISSING
    low, high = (f"{end:+.2f}".replace("-", "−") for end in (difference.low, difference.high))
    return f"{difference.mean:+.2f} [{low}, {high}]".replace("-", "−")


def flops_text(flops: float | None) -> str:
    """Return a number of floating-point operations with its prefix.

    >>> flops_text(10.486e9), flops_text(54_300_000), flops_text(None)
    ('10.5 G', '54.3 M', '–')
    """
    return _scaled(flops, 1000.0, ("", " k", " M", " G", " T", " P"))


def bytes_text(count: float | None) -> str:
    """Return a number of bytes in binary units.

    >>> bytes_text(123_456_789), bytes_text(None)
    ('117.7 MiB', '–')
    """
    return _scaled(count, 1024.0, (" B", " KiB", " MiB", " GiB", " TiB"))


def _scaled(value: float | None, base: float, units: Sequence[str]) -> str:
    if value is None:
        return MISSING
    power = 0
    while value >= base and power < len(units) - 1:
        value, power = value / base, power + 1
    return f"{value:.1f}{units[power]}" if power else f"{value:.0f}{units[0]}"


def milliseconds_text(seconds: float | None) -> str:
    """Return a duration in milliseconds, three digits of it.

    >>> milliseconds_text(0.4127), milliseconds_text(0.00512), milliseconds_text(None)
    ('413', '5.12', '–')
    """
    if seconds is None:
        return MISSING
    value = 1000.0 * seconds
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def units_text(units: float | None) -> str:
    """Return a cost in forward passes.

    >>> units_text(7.96), units_text(1.0)
    ('8.0 ×', '1.0 ×')
    """
    return MISSING if units is None else f"{units:.1f} ×"


def value_text(value: Any) -> str:
    """Return a setting's value as a settings file would write it.

    >>> value_text(0.6), value_text(True), value_text("tensor"), value_text(None)
    ('0.6', 'true', 'tensor', 'none')
    """
    if isinstance(value, str):
        return value
    return "none" if value is None else json.dumps(value, ensure_ascii=False, sort_keys=True)


def listed(items: Sequence[object]) -> str:
    """Return items with commas between them."""
    return ", ".join(str(item) for item in items)


def counted(number: int, one: str, many: str) -> str:
    """Return a number with the right noun.

    >>> counted(1, "seed", "seeds"), counted(2000, "image", "images")
    ('1 seed', '2,000 images')
    """
    return f"{number:,} {one if number == 1 else many}"


def tidy_command(command: str | None) -> str:
    """Return a record's command without what only its machine knew: where things were written and how many at once.

    >>> tidy_command("driftlaw run cifar10-c --seeds 1-3 --out /tmp/runs --json")
    'driftlaw run cifar10-c --seeds 1-3'
    """
    words = iter(shlex.split(command or ""))
    kept = []
    for word in words:
        name, equals, _ = word.partition("=")
        if name in _OF_THE_MACHINE:
            if not equals:
                next(words, None)
        elif word not in _SWITCHES:
            kept.append(re.sub(r"(?<![\w:])/(?:[^/\s]+/)+", "", word))
    return shlex.join(kept)
