"""State dicts: reading them from files, and loading them into a network under the names it uses."""

import argparse
import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, PositiveFloat, PositiveInt
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from driftlaw.errors import DataError, UsageError, combined_error
from driftlaw.files import check_regular_file
from driftlaw.settings import validate
from driftlaw.torch_files import read_torch_file

_WRAPPERS = ("state_dict", "model_state_dict", "model_state", "model", "net")  # keys under which projects store it
_MAX_PROBLEMS = 3  # tensors of one kind that a message names


def read_tensors(path: Path) -> tuple[dict[str, Tensor], Mapping[str, Any], dict[str, Any] | None]:
    """Return the tensors of a file, the top-level contents of a torch checkpoint, and driftlaw's metadata."""
    if path.suffix == ".safetensors":
        check_regular_file(path)
        try:
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata() or {}
            tensors = load_file(path)
        except (SafetensorError, OSError) as error:
            raise DataError(f"{path} is not a complete safetensors file ({error}). Get or make it again.") from error
        return tensors, {}, _read_metadata(metadata["driftlaw"], path) if "driftlaw" in metadata else None
    with _allow_namespace():
        content = read_torch_file(path)
    fields = content if isinstance(content, Mapping) else {}
    for key in _WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping) or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in content.items()
    ):
        raise DataError(f"{path} contains no state dict. Expected tensors by name, or these under 'state_dict'.")
    return dict(content), fields, None


class WeightsMetadata(BaseModel):
    """What ``save_model`` writes into a file of weights, besides other data that the caller may have added."""

    model_config = ConfigDict(extra="allow", strict=True)

    name: str
    num_classes: PositiveInt
    normalise: str | dict[str, Any]
    batch_norm_scale: PositiveFloat = 1.0


def _read_metadata(text: str, path: Path) -> dict[str, Any]:
    try:
        metadata: dict[str, Any] = json.loads(text)
        validate(WeightsMetadata, metadata, f"{path} has invalid metadata:")
    except UsageError as error:
        raise DataError(f"{error}\nMake the file again with driftlaw.models.save_model.") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"The metadata of {path} is not valid JSON ({error}). Make the file again.") from None
    return metadata


@contextlib.contextmanager
def _allow_namespace() -> Iterator[None]:
    """Context manager that lets checkpoints contain an argparse namespace: TTT++ stores its settings in one."""
    serialization = torch.serialization  # its context manager safe_globals needs torch 2.5
    before = serialization.get_safe_globals()
    serialization.add_safe_globals([argparse.Namespace])
    try:
        yield
    finally:
        serialization.clear_safe_globals()
        serialization.add_safe_globals(before)


def load_tensors(model: nn.Module, tensors: Mapping[str, Tensor], heading: str) -> None:
    """Load a state dict that must have the model's names and shapes; only ``num_batches_tracked`` may be missing.

    Raises:
        DataError: names or shapes differ, or numbers are integer or complex instead of floating-point. The message
            starts with ``heading`` and lists them.
    """
    expected = {key: _form(value) for key, value in model.state_dict().items()}
    found = {key: _form(value) for key, value in tensors.items()}
    differing = [key for key in expected | found if expected.get(key) != found.get(key)]
    groups: dict[str, list[str]] = {}
    for key in (key for key in differing if not key.endswith("num_batches_tracked")):
        kind = (
            "of another shape" if key in expected and key in found else "missing" if key in expected else "not expected"
        )
        problem = f"{key}: expected {expected.get(key, 'nothing')}, found {found.get(key, 'nothing')}"
        groups.setdefault(kind, []).append(problem)
    problems = []
    for kind, group in groups.items():
        more = [f"and {len(group) - _MAX_PROBLEMS} more that are {kind}"] if len(group) > _MAX_PROBLEMS else []
        problems += group[:_MAX_PROBLEMS] + more
    if problems:
        raise DataError(str(combined_error(heading, problems)))
    model.load_state_dict(tensors, strict=False)


def _form(value: Tensor) -> str:
    numbers = "" if value.is_floating_point() else " of complex numbers" if value.is_complex() else " of integers"
    return f"{tuple(value.shape)}{numbers}"


def strip_prefix(tensors: Mapping[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Return the tensors without the prefix that a wrapper added to the model's names, such as ``module.``.

    Tensors without the prefix, such as the loss of a Lightning module, are left out. If several prefixes fit equally
    well, as for a student and a teacher, the tensors are returned unchanged.

    >>> list(strip_prefix({"module.weight": torch.ones(1, 1), "module.bias": torch.ones(1)}, nn.Linear(1, 1)))
    ['weight', 'bias']
    """
    names = [name for name in model.state_dict() if not name.endswith("num_batches_tracked")]
    prefixes = {key.removesuffix(names[0]) for key in tensors if names and key.endswith(names[0])}
    counts = {prefix: sum(prefix + name in tensors for name in names) for prefix in prefixes}
    best = [prefix for prefix, count in counts.items() if count == max(counts.values())]
    prefix = best[0] if len(best) == 1 else ""
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
