"""Exact rescaling of the BatchNorm layers of a ResNet, so that learning rates fit its weights."""

from typing import Any, cast

import torch
from torch import nn

from driftlaw.models.resnet import ResNet


@torch.no_grad()
def rescale_batch_norm(model: ResNet, scale: float) -> None:
    """Multiply the scale and shift of every BatchNorm layer by a number, without changing the logits.

    A ReLU of a·x is a times the ReLU of x, and BatchNorm removes the scale of its input. So if all features are
    multiplied by ``scale`` = a, the logits stay the same when the following are adjusted: the running mean (times a),
    running variance and epsilon (times a²) of BatchNorm layers and the bias of convolutions (times a) after the first,
    and the weight of the linear layer (divided by a). This holds in eval mode and with batch statistics.

    The step of LAW, and of SGD, has an absolute size. It therefore matters how large the trained parameters are. Those
    of Keras' ResNet-50 are about five times those of torchvision's, for which the published learning rates were chosen.

    Args:
        model: The network; it is changed in place, and ``model.info["batch_norm_scale"]`` is set.
        scale: Positive factor. A second call multiplies again.
    """
    for name, layer in model.named_modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.weight.mul_(scale)
            layer.bias.mul_(scale)
            if name != "bn1":  # the input of the first layers is not scaled
                assert layer.running_mean is not None
                assert layer.running_var is not None
                layer.running_mean.mul_(scale)
                layer.running_var.mul_(scale**2)
                layer.eps *= scale**2
        elif isinstance(layer, nn.Conv2d) and name != "conv1" and layer.bias is not None:
            layer.bias.mul_(scale)
    model.fc.weight.div_(scale)
    info = cast("dict[str, Any]", model.info)
    info["batch_norm_scale"] = scale * info.get("batch_norm_scale", 1.0)
