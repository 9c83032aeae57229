"""Layer profiles: one number per layer under one domain, from runs that saw only that domain."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from driftlaw.records import RunRecord
from driftlaw.reports.format import listed
from driftlaw.reports.published import paper_protocol

LAYER_WEIGHTS, LAYER_IMPORTANCE = "layer_weights", "layer_sharpness"  # names of LAW's diagnostics
CLEAN, NOISE, BLUR = "clean", "gaussian_noise", "defocus_blur"

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, eq=False)
class Profile:
    """One number per layer, from input to output.

    Attributes:
        dataset: name of the dataset as in presets.
        model: name of the model.
        domain: corruption of the images, or ``clean``.
        layers: names of the layers.
        values: one number per layer at the last step, averaged over seeds.
        steps: number of batches up to then.
        records: records that the values are from.
    """

    dataset: str
    model: str
    domain: str
    layers: tuple[str, ...]
    values: Array
    steps: int
    records: tuple[RunRecord, ...]

    @property
    def name(self) -> str:
        """Dataset and model."""
        return f"{self.dataset}, {self.model}"

    @property
    def early_share(self) -> float:
        """Fraction of the total weight in the first third of the layers."""
        return float(self.values[: round(len(self.values) / 3)].sum() / self.values.sum())

    @property
    def evenness(self) -> float:
        """Entropy of the weight distribution divided by its maximum: 0 for a single layer, 1 for equal weights."""
        shares = self.values / self.values.sum()
        positive = shares[shares > 0.0]
        return float(-(positive * np.log(positive)).sum() / np.log(len(self.values)))


def layer_profiles(records: Iterable[RunRecord], diagnostic: str) -> list[Profile]:
    """Return one profile per dataset, model and domain, in the order of the records.

    A domain counts only if the run started with it, or was reset at its beginning.
    """
    entries: dict[tuple[str, str, str], list[tuple[RunRecord, Array, int]]] = {}
    for record in records:
        for domain, values, steps in _fresh_domains(record, diagnostic):
            key = (_dataset(record), str(record.header["model"]["name"]), domain)
            entries.setdefault(key, []).append((record, values, steps))
    return [_profile(key, group, diagnostic) for key, group in entries.items()]


def by_model(profiles: Sequence[Profile]) -> dict[str, dict[str, Profile]]:
    """Return profiles by dataset and model, and then by domain: clean, noise, blur, then the others."""
    grouped: dict[str, dict[str, Profile]] = {}
    known = (CLEAN, NOISE, BLUR)
    for profile in sorted(profiles, key=lambda item: known.index(item.domain) if item.domain in known else len(known)):
        grouped.setdefault(profile.name, {})[profile.domain] = profile
    return grouped


def fisher_diagonal(profile: Profile) -> Array:
    """Return the mean Fisher diagonal per layer and batch: Eq. 5 squared, which is Eq. 4 summed over batches."""
    return np.asarray(profile.values**2 / profile.steps)


def seeds_of(profiles: Iterable[Profile]) -> str:
    """Return the seeds of profiles for a caption."""
    return listed(sorted({record.seed for profile in profiles for record in profile.records}))


def _fresh_domains(record: RunRecord, diagnostic: str) -> Iterable[tuple[str, Array, int]]:
    for segment in record.segments:
        if segment.first_batch and record.header["reset_on"] != "domain":
            continue
        lines = record.batches[segment.first_batch : segment.first_batch + segment.batches]
        rows = RunRecord(record.header, lines).diagnostics(diagnostic)
        if rows:
            yield segment.name, np.array(rows[-1], dtype=float), len(lines)


def _dataset(record: RunRecord) -> str:
    name = str(record.header["stream"]["dataset"]["name"])
    known = paper_protocol().dataset_of(name)
    return known.name if known else name


def _profile(key: tuple[str, str, str], entries: Sequence[tuple[RunRecord, Array, int]], diagnostic: str) -> Profile:
    length = len(entries[0][1])
    entries = [entry for entry in entries if len(entry[1]) == length]
    names = entries[0][0].diagnostic_labels(diagnostic)
    layers = names if len(names) == length else [f"layer {index}" for index in range(length)]
    values = np.mean([values for _, values, _ in entries], axis=0)
    steps = min(steps for _, _, steps in entries)
    return Profile(*key, tuple(layers), values, steps, tuple(record for record, _, _ in entries))
