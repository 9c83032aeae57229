"""In which order the images of a domain come: seeded permutations of their numbers in the dataset."""

from __future__ import annotations

import numpy as np

Numbers = np.ndarray


def image_order(order: str, labels: Numbers, *, seed: int, limit: int | None, concentration: float) -> Numbers:
    """Return the numbers of the images in the order of the stream; the same in every domain.

    Args:
        order: ``shuffled``, ``as-is`` or ``dirichlet``.
        labels: (n,), the class of every image of the dataset.
        seed: drives the shuffling.
        limit: how many images to take; all of them where None.
        concentration: of the Dirichlet order; the smaller, the more a class comes all at once.
    """
    count = len(labels) if limit is None else min(limit, len(labels))
    if order == "as-is":
        return np.arange(count)
    generator = np.random.default_rng(seed)
    chosen = generator.permutation(len(labels))[:count]
    return _clustered(chosen, labels[chosen], concentration, generator) if order == "dirichlet" else chosen


def _clustered(numbers: Numbers, labels: Numbers, concentration: float, generator: np.random.Generator) -> Numbers:
    """Spread each class over time slots by a Dirichlet draw; in a slot, each class comes in one piece.

    There are as many slots as classes, the field's custom.
    """
    classes = np.unique(labels)
    slots: list[list[Numbers]] = [[] for _ in classes]
    for label in classes:
        members = numbers[labels == label]
        shares = generator.dirichlet(np.full(len(classes), concentration))
        cuts = np.round(np.cumsum(shares)[:-1] * len(members)).astype(int)
        for slot, piece in zip(slots, np.split(members, cuts), strict=True):
            slot.append(piece)
    pieces = [slot[place] for slot in slots for place in generator.permutation(len(slot))]
    return np.concatenate(pieces)
