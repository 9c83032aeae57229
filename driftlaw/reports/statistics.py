"""Whether one method errs less than another: paired differences with a bootstrap interval over domains and seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from statistics import fmean
from typing import Any

import numpy as np

from driftlaw.records import RunRecord

RESAMPLES = 10_000
LEVEL = 0.95
LEAST = 6  # pairs: of five, all have the same sign by chance once in sixteen times, more often than LEVEL allows
_SEED = 0  # of the resampling: the same records give the same interval

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Difference:
    """The error of one method less that of another, in points, over what both were run on.

    Attributes:
        mean: over seeds and units.
        low: lower end of the interval.
        high: upper end of the interval.
        seeds: how many seeds both have.
        units: how many domains, or batches of a single one, both have.
        noun: what the units are, ``domains`` or ``batches``.
    """

    mean: float
    low: float
    high: float
    seeds: int
    units: int
    noun: str = "domains"

    @property
    def leaves_zero_out(self) -> bool:
        """Whether the sign of the difference is beyond doubt, as far as the resamples tell."""
        return self.seeds * self.units >= LEAST and (self.low > 0.0 or self.high < 0.0)

    @property
    def is_above_zero(self) -> bool:
        """Whether the first method errs more than the second, beyond doubt."""
        return self.leaves_zero_out and self.low > 0.0


def bootstrap_interval(
    differences: Sequence[Sequence[float]] | Array,
    *,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
    seed: int = _SEED,
) -> tuple[float, float]:
    """Return the percentile interval of the mean of ``differences`` (a row a seed, a column a domain).

    A resample draws as many seeds and as many domains as there are, with replacement and independently of each other,
    and takes the mean over all pairs of them: what stays the same in another choice of seeds and of domains.
    """
    values = np.asarray(differences, dtype=float)
    if values.ndim != 2 or values.size == 0:
        raise ValueError(f"expected differences as (seeds, domains), got an array of shape {values.shape}")
    rows = _weights(values.shape[0], resamples, seed)
    columns = _weights(values.shape[1], resamples, seed + 1)
    means = np.einsum("ru,ru->r", rows @ values, columns)
    edge = 100.0 * (1.0 - level) / 2.0
    low, high = np.percentile(means, [edge, 100.0 - edge])
    return float(low), float(high)


@lru_cache(maxsize=64)
def _weights(count: int, resamples: int, seed: int) -> Array:
    """Return how often each of ``count`` things is drawn in every resample, over ``count``: (resamples, count)."""
    drawn = np.random.default_rng(seed).integers(0, count, size=(resamples, count))
    places = drawn + count * np.arange(resamples)[:, None]
    return np.bincount(places.ravel(), minlength=resamples * count).reshape(resamples, count) / count


def paired_difference(
    first: Sequence[RunRecord],
    second: Sequence[RunRecord],
    *,
    domain: str | None = None,
    severity: int | None = None,
) -> Difference | None:
    """Return the error of ``first`` less that of ``second`` over their common seeds; None where nothing is paired.

    Args:
        first: finished runs of one method, a seed each.
        second: those of another, on the same stream.
        domain: only this domain, batch by batch; by default all of them, domain by domain.
        severity: only this severity; by default all of them.
    """
    own, other = ({record.seed: record for record in records} for records in (first, second))
    seeds = [seed for seed in own if seed in other]
    noun = "batches" if domain is not None else "domains"
    sheets = [_paired(own[seed], other[seed], domain, severity) for seed in seeds]
    if domain is None and sheets and max(len(sheet) for sheet in sheets) == 1:
        (only,) = sheets[0]
        noun, sheets = "batches", [_paired(own[seed], other[seed], str(only), severity) for seed in seeds]
    units = [unit for unit in sheets[0] if all(unit in sheet for sheet in sheets)] if sheets else []
    if not units or len(units) * len(seeds) < 2:
        return None  # one number has no interval
    values = np.array([[sheet[unit] for unit in units] for sheet in sheets])
    low, high = bootstrap_interval(values)
    return Difference(float(values.mean()), low, high, len(seeds), len(units), noun)


def _paired(first: RunRecord, second: RunRecord, domain: str | None, severity: int | None) -> Mapping[str | int, float]:
    """Return the differences that two runs of one stream have, by domain or by batch of one domain."""
    read = _by_domain if domain is None else lambda record, level: _by_batch(record, domain, level)
    own, other = read(first, severity), read(second, severity)
    return {unit: own[unit] - other[unit] for unit in own if unit in other}


def _by_domain(record: RunRecord, severity: int | None) -> dict[str | int, float]:
    errors: dict[str | int, list[float]] = {}
    for segment in record.segments:
        if severity in (None, segment.severity):
            errors.setdefault(segment.name, []).append(segment.error)
    return {name: fmean(values) for name, values in errors.items()}


def _by_batch(record: RunRecord, domain: str, severity: int | None) -> dict[str | int, float]:
    """Return the error of every batch of a domain; a batch that comes round again is one, with its mean error."""
    wanted = [line for line in record.batches if line["domain"]["name"] == domain]
    errors: dict[str | int, list[float]] = {}
    for _, lines in groupby(wanted, key=lambda line: line["domain"]["round"]):
        of_severity = [line for line in lines if severity in (None, line["domain"]["severity"])]
        for number, line in enumerate(of_severity):
            errors.setdefault(number, []).append(100.0 * line["wrong"] / line["images"])
    return {number: fmean(values) for number, values in errors.items()}
