"""What a method tells of every layer under one domain, read from records of runs that met that domain alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from driftlaw.records import RunRecord
from driftlaw.reports.format import listed
from driftlaw.reports.published import paper_protocol

LAYER_WEIGHTS, LAYER_SHARPNESS = "layer_weights", "layer_sharpness"
CLEAN, NOISE, BLUR = "clean", "gaussian_noise", "defocus_blur"

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, eq=False)
class Profile:
    """One number a layer, from input to output.

    Attributes:
        dataset: the benchmark's name, as presets have it.
        network: the network's name.
        domain: what the images had suffered; ``clean`` where nothing.
        layers: names of the layers.
        values: a number a layer, at the last step, the mean over seeds.
        steps: how many batches had been seen by then.
        records: where it was read from.
    """

    dataset: str
    network: str
    domain: str
    layers: tuple[str, ...]
    values: Array
    steps: int
    records: tuple[RunRecord, ...]

    @property
    def place(self) -> str:
        """Dataset and network in a few words."""
        return f"{self.dataset}, {self.network}"

    @property
    def early_share(self) -> float:
        """The share of all weight that the first third of the layers has."""
        return float(self.values[: round(len(self.values) / 3)].sum() / self.values.sum())

    @property
    def evenness(self) -> float:
        """How evenly the weight is spread: the entropy of its shares over its largest, from 0 (one layer) to 1."""
        shares = self.values / self.values.sum()
        told = shares[shares > 0.0]
        return float(-(told * np.log(told)).sum() / np.log(len(self.values)))


def layer_profiles(records: Iterable[RunRecord], fact: str) -> list[Profile]:
    """Return a profile a dataset, network and domain, in the order of the records.

    A domain counts where the run came to it fresh: as its first, or reset at its beginning.
    """
    found: dict[tuple[str, str, str], list[tuple[RunRecord, Array, int]]] = {}
    for record in records:
        for domain, values, steps in _met_alone(record, fact):
            key = (_dataset(record), str(record.header["model"]["name"]), domain)
            found.setdefault(key, []).append((record, values, steps))
    return [_profile(key, entries, fact) for key, entries in found.items()]


def by_network(profiles: Sequence[Profile]) -> dict[str, dict[str, Profile]]:
    """Return profiles by dataset and network, and there by domain: clean, noise, blur, then the rest as they come."""
    grouped: dict[str, dict[str, Profile]] = {}
    known = (CLEAN, NOISE, BLUR)
    for profile in sorted(profiles, key=lambda one: known.index(one.domain) if one.domain in known else len(known)):
        grouped.setdefault(profile.place, {})[profile.domain] = profile
    return grouped


def _met_alone(record: RunRecord, fact: str) -> Iterable[tuple[str, Array, int]]:
    for segment in record.segments:
        if segment.first_batch and record.header["reset_on"] != "domain":
            continue
        lines = record.batches[segment.first_batch : segment.first_batch + segment.batches]
        told = [line["facts"][fact] for line in lines if isinstance(line["facts"].get(fact), list)]
        if told:
            yield segment.name, np.array(told[-1], dtype=float), len(lines)


def _dataset(record: RunRecord) -> str:
    name = str(record.header["stream"]["dataset"]["name"])
    known = paper_protocol().dataset_of(name)
    return known.name if known else name


def _profile(key: tuple[str, str, str], entries: Sequence[tuple[RunRecord, Array, int]], fact: str) -> Profile:
    length = len(entries[0][1])
    entries = [entry for entry in entries if len(entry[1]) == length]
    names = entries[0][0].header.get("fact_labels", {}).get(fact, [])
    layers = names if len(names) == length else [f"layer {index}" for index in range(length)]
    values = np.mean([values for _, values, _ in entries], axis=0)
    steps = min(steps for _, _, steps in entries)
    return Profile(*key, tuple(map(str, layers)), values, steps, tuple(record for record, _, _ in entries))


def seeds_of(profiles: Iterable[Profile]) -> str:
    """Return the seeds that profiles were read from, for a caption."""
    return listed(sorted({record.seed for profile in profiles for record in profile.records}))
