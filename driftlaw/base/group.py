"""Start of an adapter on the ranks of a process group: all must have the same model, method and settings."""

from typing import Any

import torch
from torch import nn

from driftlaw import __version__
from driftlaw.execution.ranks import Ranks
from driftlaw.models import weights_sha256


def join_group(group: Any, adapter: Any, model: nn.Module, train_data: Any) -> Ranks:
    """Wait for all ranks of a group and compare what their adapters are made of.

    Args:
        group: the process group.
        adapter: the adapter that is being made, with name, settings and seed.
        model: the caller's model.
        train_data: the training data, or None.

    Raises:
        UsageError: something differs. The message says what, and on which rank.
        RankError: a rank did not arrive before the timeout of the group.
    """
    ranks = Ranks(group)
    ranks.wait_for_all()
    settings = adapter.config.model_dump(mode="json")
    values = {
        "driftlaw": __version__,
        "torch": torch.__version__,
        "method": adapter.name,
        "seed": adapter.seed,
        "weights of the model (sha256)": weights_sha256(model)[:16],
        "device": next((value.device.type for value in model.parameters()), "cpu"),
        "size of the training data": len(train_data) if hasattr(train_data, "__len__") else None,
        **{f"setting {name}": value for name, value in settings.items()},
    }
    ranks.check_equal("The ranks of the group differ. Use the same model, method and settings on all ranks:", values)
    return ranks
