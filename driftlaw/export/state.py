"""Adapters from what was saved of them: a state dict, or the checkpoint of a run that was interrupted."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import Any, NoReturn

import torch
from torch import nn

from driftlaw.base import Adapter, ExecutionSettings
from driftlaw.base import registered_methods as methods
from driftlaw.components.features import find_head
from driftlaw.errors import DataError, UsageError, unknown
from driftlaw.methods import make_adapter

_KEY = "_extra_state"
_EXPECTED = "expected what torch.save(adapter.state_dict(), path) wrote"


def read_state(path: str | os.PathLike[str]) -> Mapping[str, Any]:
    """Return the adapter's state in a file; no code in the file is run.

    Args:
        path: what ``torch.save(adapter.state_dict(), path)`` wrote, or the checkpoint of a run under way.

    Raises:
        DataError: the file cannot be read, or holds something else.
    """
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises half a dozen kinds for a file it cannot read
        reason = type(error).__name__  # its words are advice to trust the file
        raise DataError(f"{path} cannot be read as a file of torch.save ({reason}): {_EXPECTED}") from error
    if isinstance(content, Mapping) and isinstance(content.get("adapter"), Mapping):
        content = content["adapter"]
    extra = content.get(_KEY) if isinstance(content, Mapping) else None
    if not isinstance(extra, Mapping) or "method" not in extra:
        raise DataError(f"{path} holds no adapter: {_EXPECTED}")
    return content


def restore_adapter(model: nn.Module, state: Mapping[str, Any]) -> Adapter:
    """Return the adapter that a state was taken from, for answering; nobody's training data is read.

    Args:
        model: the network that the adapter was made from, or one of the same shape.
        state: what its ``state_dict()`` returned.

    Raises:
        UsageError: the state is not of an adapter, of an unknown method, or of another network.
    """
    extra = state.get(_KEY)
    if not isinstance(extra, Mapping) or "method" not in extra:
        raise UsageError("this state holds no method: expected what an adapter's state_dict() returned")
    if extra["method"] not in methods():
        raise unknown("method", extra["method"], sorted(methods()))
    # How steps were run there says nothing of the answer, and this machine may not be able to.
    settings = {key: value for key, value in extra["config"].items() if key not in ExecutionSettings.model_fields}
    source = _NeverRead(find_head(model).out_features) if methods()[extra["method"]].needs_train_data else None
    adapter = make_adapter(extra["method"], model, settings, train_data=source)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="the saved state was made with other settings")
        adapter.load_state_dict(state)
    return adapter


class _NeverRead:
    """Stands where a method wants its training data: what only answers has no use for them.

    Args:
        num_classes: of the network.
    """

    def __init__(self, num_classes: int) -> None:
        self.num_classes = num_classes
        self.labels = [0]

    def __len__(self) -> int:
        return 1

    def facts(self) -> dict[str, Any]:
        """Return what is known of the images: nothing."""
        return {"name": "none"}

    def images(self, numbers: Any) -> NoReturn:
        """Refuse to give images."""
        raise UsageError(
            "this method reads its training data to be made: make the adapter yourself, load the state, and call "
            "driftlaw.export.export_adapter"
        )
