"""Order of the images within a domain: seeded permutations of dataset indices."""

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]


def image_order(order: str, labels: Indices, *, seed: int, limit: int | None, concentration: float) -> Indices:
    """Return dataset indices in the order of the stream, which is the same in every domain.

    Args:
        order: ``shuffled``, ``as-is`` or ``dirichlet``.
        labels: (n,), the class of every image of the dataset.
        seed: Seed of the permutation.
        limit: Number of images to use; all if None.
        concentration: Parameter of the Dirichlet order. Smaller values make classes arrive in longer runs.
    """
    count = len(labels) if limit is None else min(limit, len(labels))
    if order == "as-is":
        return np.arange(count)
    generator = np.random.default_rng(seed)
    chosen = generator.permutation(len(labels))[:count]
    return _dirichlet_order(chosen, labels[chosen], concentration, generator) if order == "dirichlet" else chosen


def _dirichlet_order(
    indices: Indices, labels: Indices, concentration: float, generator: np.random.Generator
) -> Indices:
    """Distribute each class over time slots with Dirichlet-drawn shares; within a slot, each class is one run.

    There are as many slots as classes, as is usual in the TTA literature.
    """
    classes = np.unique(labels)
    slots: list[list[Indices]] = [[] for _ in classes]
    for label in classes:
        members = indices[labels == label]
        shares = generator.dirichlet(np.full(len(classes), concentration))
        cuts = np.round(np.cumsum(shares)[:-1] * len(members)).astype(int)
        for slot, part in zip(slots, np.split(members, cuts), strict=True):
            slot.append(part)
    parts = [slot[position] for slot in slots for position in generator.permutation(len(slot))]
    return np.concatenate(parts)
