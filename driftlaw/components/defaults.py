"""Default settings that fit the network: published values by number of classes, and the size of the weights."""

import math
from collections.abc import Iterable, Mapping

from torch import Tensor


def value_for_classes(published: Mapping[int, float], classes: int) -> float:
    """Return the value for a number of classes, from values that a paper gives for some numbers of classes.

    In between, the logarithm of the value is linear in the logarithm of the number of classes. Below the smallest and
    above the largest number the value is constant.

    Args:
        published: positive values by number of classes.
        classes: number of classes of the network.

    >>> rates = {10: 1e-3, 100: 5e-5, 1000: 2e-4}
    >>> value_for_classes(rates, 2), value_for_classes(rates, 100), round(value_for_classes(rates, 316), 6)
    (0.001, 5e-05, 0.0001)
    """
    if classes in published:
        return published[classes]
    below = max((number for number in published if number < classes), default=None)
    above = min((number for number in published if number > classes), default=None)
    if below is None or above is None:
        return published[min(published) if below is None else max(published)]
    share = math.log(classes / below) / math.log(above / below)
    return float(math.exp((1 - share) * math.log(published[below]) + share * math.log(published[above])))


def root_mean_square(tensors: Iterable[Tensor]) -> float:
    """Return the root mean square of all entries of some tensors; 0 if there are none."""
    squares = [(float(value.detach().double().square().sum()), value.numel()) for value in tensors]
    return math.sqrt(sum(total for total, _ in squares) / max(sum(count for _, count in squares), 1))
