"""Adapters from saved files: a state dict, or the checkpoint of an interrupted run."""

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from torch import nn

from driftlaw.base import Adapter, ExecutionSettings
from driftlaw.components.features import find_head
from driftlaw.errors import DataError, UsageError, unknown_name, warn_user
from driftlaw.execution.settings import InputSettings
from driftlaw.methods import make_adapter, registered_methods
from driftlaw.models import NORMALIZATIONS, build_model, list_weights, load_model
from driftlaw.models.checkpoint_formats import default_normalization
from driftlaw.models.hub import is_hub_name
from driftlaw.torch_files import read_torch_file

_EXPECTED = "Expected a file written by torch.save(adapter.state_dict(), path)."


def read_state(path: str | os.PathLike[str]) -> Mapping[str, Any]:
    """Return the adapter state in a file. Code in the file is not executed.

    Args:
        path: a file written by ``torch.save(adapter.state_dict(), path)``, or the checkpoint of an unfinished run.

    Raises:
        DataError: the file cannot be read, or does not contain an adapter state.
    """
    content = read_torch_file(path, expected=_EXPECTED)
    if isinstance(content, Mapping) and isinstance(content.get("adapter"), Mapping):
        content = content["adapter"]
    if not isinstance(content, Mapping) or _extra_state(content) is None:
        raise DataError(f"{path} does not contain an adapter state. {_EXPECTED}")
    return content


def restore_adapter(model: nn.Module, state: Mapping[str, Any]) -> Adapter:
    """Return an adapter with a saved state, for inference. Training data is not needed.

    Args:
        model: the model that the adapter was created from, or one of the same architecture.
        state: what its ``state_dict()`` returned.

    Raises:
        UsageError: this is not the state of an adapter, its method is unknown, or it belongs to another model.
    """
    extra = _extra_state(state)
    if extra is None:
        raise UsageError("The state has no method. Expected what the state_dict() of an adapter returned.")
    method = extra["method"]
    if method not in registered_methods():
        raise unknown_name("method", method, sorted(registered_methods()))
    # Execution settings do not affect the logits, and this machine may not support them.
    unused = ExecutionSettings.model_fields.keys() - InputSettings.model_fields.keys()
    config = {**getattr(registered_methods()[method].Config, "value_if_absent", {}), **extra["config"]}
    settings = {key: value for key, value in config.items() if key not in unused}
    needs_data = registered_methods()[method].needs_train_data
    train_data = UnusedTrainData(find_head(model).out_features) if needs_data else None
    adapter = make_adapter(method, model, settings, train_data=train_data)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*saved.*settings")
        adapter.load_state_dict(state)
    return adapter


def _extra_state(state: Mapping[str, Any]) -> Mapping[str, Any] | None:
    extra = state.get("_extra_state")
    return extra if isinstance(extra, Mapping) and "method" in extra else None


def load_model_for_state(
    state: Mapping[str, Any],
    model: str | None,
    *,
    normalize: str | None = None,
    folder: str | os.PathLike[str] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> nn.Module:
    """Return a model that a saved adapter state can be loaded into.

    Args:
        state: the state of an adapter.
        model: weights, as for ``driftlaw.load_model``, or the name of an architecture.
        normalize: name of the input normalisation, for weights that do not store it.
        folder: the data directory; see ``driftlaw.paths.data_dir``.
        checkpoint: file with a state dict for the model, as for ``driftlaw.load_model``.

    Raises:
        UsageError: the model is None, unknown or of another architecture, or its normalisation is unknown.
    """
    if model is None:
        raise UsageError(
            "A saved adapter state does not name its model. Pass the weights it was created from, for example "
            "--network wrn_16_1-cifar10."
        )
    if Path(model).is_file() or model in list_weights(folder) or is_hub_name(model) or checkpoint:
        return load_model(model, normalize=normalize, folder=folder, checkpoint=checkpoint)
    skeleton = build_model(model, num_classes=1)
    head = next(name for name, layer in skeleton.named_modules() if layer is find_head(skeleton))
    if f"model.{head}.weight" not in state:
        raise UsageError(f"The saved state is not the state of a {model}: it has no '{head}'. Pass another --network.")
    chosen = normalize or default_normalization(model)
    if chosen is None:
        raise UsageError(
            f"A saved state does not store the input normalisation, and it differs between versions of {model}. "
            f"Pass the weights as --network, or --normalize with one of {', '.join(NORMALIZATIONS)}."
        )
    if normalize is None:
        warn_user(
            f"The saved state does not store the input normalisation. Using '{chosen}', the usual one for {model}. "
            "Pass --normalize to choose another."
        )
    return build_model(model, num_classes=len(state[f"model.{head}.weight"]), normalize=chosen)


class UnusedTrainData:
    """Placeholder for training data when an adapter is restored for inference only.

    Args:
        num_classes: number of classes of the model.
    """

    def __init__(self, num_classes: int) -> None:
        self.num_classes = num_classes
        self.labels = [0]

    def __len__(self) -> int:
        return 1

    def metadata(self) -> dict[str, Any]:
        """Return a description for records."""
        return {"name": "none"}

    def images(self, indices: Any) -> NoReturn:
        """Raise, because there are no images."""
        raise UsageError(
            "This method reads training data when it is created. Create the adapter with train_data=…, load its "
            "state, and call driftlaw.export.export_adapter."
        )
