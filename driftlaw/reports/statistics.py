"""Paired differences between methods, with bootstrap intervals over domains and seeds."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from statistics import fmean
from typing import Any

import numpy as np

from driftlaw.records import RunRecord
from driftlaw.records.run_record import batch_error

RESAMPLES = 10_000
LEVEL = 0.95
MIN_PAIRS = 6  # five pairs have the same sign by chance in one of sixteen cases: more often than 1 - LEVEL
_SEED = 0  # fixed, so that the same records give the same interval

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Difference:
    """Error of one method minus the error of another, in percentage points, over what both were run on.

    Attributes:
        mean: Mean over seeds and units.
        low: Lower end of the 95 % interval.
        high: Upper end of the 95 % interval.
        seeds: Number of common seeds.
        units: Number of common domains, or of common batches of a single domain.
        noun: What the units are, ``domains`` or ``batches``.
    """

    mean: float
    low: float
    high: float
    seeds: int
    units: int
    noun: str = "domains"

    @property
    def is_significant(self) -> bool:
        """True if the interval excludes zero and there are at least ``MIN_PAIRS`` pairs."""
        return self.seeds * self.units >= MIN_PAIRS and (self.low > 0.0 or self.high < 0.0)

    @property
    def is_above_zero(self) -> bool:
        """True if the first method has a significantly higher error than the second."""
        return self.is_significant and self.low > 0.0


def bootstrap_interval(
    differences: Sequence[Sequence[float]] | Array,
    *,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
    seed: int = _SEED,
) -> tuple[float, float]:
    """Return the percentile bootstrap interval of the mean of differences.

    Each resample draws seeds and domains with replacement, independently of each other, and takes the mean over all
    drawn pairs. The interval therefore covers both the choice of seeds and the choice of domains.

    Args:
        differences: Differences of shape (seeds, domains).
        resamples: Number of resamples.
        level: Coverage of the interval.
        seed: Seed of the resampling.

    >>> bootstrap_interval([[2.0, 2.0, 2.0]])
    (2.0, 2.0)
    """
    values = np.asarray(differences, dtype=float)
    if values.ndim != 2 or values.size == 0:
        raise ValueError(f"Expected differences of shape (seeds, domains), got an array of shape {values.shape}.")
    rows = _weights(values.shape[0], resamples, seed)
    columns = _weights(values.shape[1], resamples, seed + 1)
    means = np.einsum("ru,ru->r", rows @ values, columns)
    tail = 100.0 * (1.0 - level) / 2.0
    low, high = np.percentile(means, [tail, 100.0 - tail])
    return float(low), float(high)


@lru_cache(maxsize=64)
def _weights(count: int, resamples: int, seed: int) -> Array:
    """Return the relative frequency of each of ``count`` items in every resample, shape (resamples, count)."""
    drawn = np.random.default_rng(seed).integers(0, count, size=(resamples, count))
    indices = drawn + count * np.arange(resamples)[:, None]
    return np.bincount(indices.ravel(), minlength=resamples * count).reshape(resamples, count) / count


def paired_difference(
    first: Sequence[RunRecord],
    second: Sequence[RunRecord],
    *,
    domain: str | None = None,
    severity: int | None = None,
) -> Difference | None:
    """Return the error of ``first`` minus that of ``second`` over their common seeds, or None if nothing is paired.

    Args:
        first: Finished runs of one method, one per seed.
        second: Finished runs of another method on the same stream.
        domain: Compare only this domain, batch by batch. By default, all domains are compared, one value per domain.
        severity: Compare only this severity. By default, all severities are compared.
    """
    theirs = {record.seed: record for record in second}
    pairs = [(record, theirs[record.seed]) for record in first if record.seed in theirs]
    noun = "domains" if domain is None else "batches"
    by_seed = [_paired(*pair, domain, severity) for pair in pairs]
    if domain is None and by_seed and all(len(differences) == 1 for differences in by_seed):
        (only,) = by_seed[0]
        noun, by_seed = "batches", [_paired(*pair, str(only), severity) for pair in pairs]
    units = [unit for unit in by_seed[0] if all(unit in other for other in by_seed)] if by_seed else []
    if len(units) * len(pairs) < 2:
        return None  # a single value has no interval
    values = np.array([[differences[unit] for unit in units] for differences in by_seed])
    return Difference(float(values.mean()), *bootstrap_interval(values), len(pairs), len(units), noun)


def _paired(first: RunRecord, second: RunRecord, domain: str | None, severity: int | None) -> dict[str | int, float]:
    ours, theirs = (_errors(record, domain, severity) for record in (first, second))
    return {unit: ours[unit] - theirs[unit] for unit in ours if unit in theirs}


def _errors(record: RunRecord, domain: str | None, severity: int | None) -> dict[str | int, float]:
    """Return the error per domain, or per batch of one domain; repetitions in later rounds are averaged."""
    errors: dict[str | int, list[float]] = {}
    if domain is None:
        for segment in record.segments:
            if severity in (None, segment.severity) and segment.error is not None:
                errors.setdefault(segment.name, []).append(segment.error)
    else:
        batches = [line for line in record.batches if line["domain"]["name"] == domain]
        for _, lines in groupby(batches, key=lambda line: line["domain"]["round"]):
            selected = [line for line in lines if severity in (None, line["domain"]["severity"])]
            for index, line in enumerate(selected):
                if (error := batch_error(line)) is not None:
                    errors.setdefault(index, []).append(error)
    return {unit: fmean(values) for unit, values in errors.items()}
