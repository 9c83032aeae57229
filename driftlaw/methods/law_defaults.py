"""Settings of LAW that fit the network: the paper's values by number of classes, limited by the size of the weights."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import nn
from torch.nn.utils import parameters_to_vector

from driftlaw.base.model_copy import find_output_layer, num_classes
from driftlaw.errors import warn_user
from driftlaw.execution.batch_statistics import batch_norm_layers

PUBLISHED = {
    "learning_rate": {10: 1e-3, 100: 5e-5, 1000: 2e-4},
    "tau": {10: 1.0, 100: 0.6, 1000: 1.0},
    "consistency_weight": {10: 0.1, 100: 1.0, 1000: 10.0},
}  # settings of the paper, Section 4.1, by number of classes
DENSE_RATE = 3e-5  # chosen on CamVid, batches of four frames with the held-out corruptions


def default_settings(model: nn.Module) -> dict[str, Any]:
    """Return η, τ and λ for a model: the paper's values for 10, 100 and 1000 classes, interpolated in between.

    A step of LAW changes every weight by up to η. BatchNorm makes the network insensitive to the scale of its weights.
    Without BatchNorm layers η is at most 0.001 times the root mean square of the weights of convolutions and linear
    layers, which is a choice of this library. If the last layer is a convolution, as in networks with logits per pixel,
    η is at most 3e-5, because a batch is a few similar frames. If the number of classes is unknown, it counts as 10.
    """
    classes = num_classes(model)
    if classes is None:
        warn_user("The number of classes is unknown. LAW uses learning_rate, tau and consistency_weight for 10.")
    values = {name: value_for_classes(published, classes or 10) for name, published in PUBLISHED.items()}
    weights = [layer.weight.detach() for layer in model.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    if weights and not batch_norm_layers(model):
        root_mean_square = float(parameters_to_vector(weights).double().square().mean().sqrt())
        values["learning_rate"] = min(values["learning_rate"], 1e-3 * root_mean_square or 1.0)
    if isinstance(find_output_layer(model), nn.Conv2d | nn.ConvTranspose2d):
        values["learning_rate"] = min(values["learning_rate"], DENSE_RATE)
    return values


def value_for_classes(published: Mapping[int, float], classes: int) -> float:
    """Return the value for a number of classes, from values that a paper gives for some numbers of classes.

    In between, the logarithm of the value is linear in the logarithm of the number of classes. Below the smallest and
    above the largest number the value is constant.

    Args:
        published: positive values by number of classes, in ascending order.
        classes: number of classes of the network.

    >>> rates = {10: 1e-3, 100: 5e-5, 1000: 2e-4}
    >>> value_for_classes(rates, 2), value_for_classes(rates, 100), round(value_for_classes(rates, 316), 6)
    (0.001, 5e-05, 0.0001)
    """
    classes = min(max(classes, min(published)), max(published))
    if classes in published:
        return published[classes]
    logarithm = np.interp(math.log(classes), np.log(list(published)), np.log(list(published.values())))
    return math.exp(logarithm)
