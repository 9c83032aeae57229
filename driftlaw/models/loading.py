"""Weights on disk: safetensors files that say what network they belong to, and other people's checkpoints by name."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from driftlaw.errors import DataError, UsageError, collected, suggest
from driftlaw.files import atomic_path
from driftlaw.models.catalogue import build_model, list_models
from driftlaw.places import ASSETS, data_dir


def list_weights(folder: str | os.PathLike[str] | None = None) -> dict[str, Path]:
    """Return the trained weights at hand, by name: those that ship with the package, then those in the data folder."""
    places = [ASSETS, data_dir(folder) / "weights"]
    return {path.stem: path for place in places for path in sorted(place.glob("*.safetensors"))}


def load_model(
    name_or_path: str | os.PathLike[str],
    *,
    num_classes: int | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> nn.Module:
    """Return a trained network in eval mode.

    Args:
        name_or_path: a name of ``list_weights``, a ``.safetensors`` file, or a torch checkpoint (read with
            ``weights_only=True``; RobustBench's names for wide resnets are understood).
        num_classes: what the caller expects; a network with another number is refused.
        folder: the data folder, where it is not the default one.
    """
    path = _find(name_or_path, folder)
    model = _from_safetensors(path) if path.suffix == ".safetensors" else _from_checkpoint(path)
    found = model.info["num_classes"]
    if num_classes is not None and num_classes != found:
        raise UsageError(f"{path} answers {found} classes, expected {num_classes}: take other weights")
    model.info["weights"] = path.stem
    return model.eval()


def save_model(model: nn.Module, path: Path, *, facts: Mapping[str, Any] | None = None) -> None:
    """Write weights with what is needed to load them again: the network's name, classes and normalisation.

    Args:
        model: made by ``build_model``.
        path: a ``.safetensors`` file; it appears whole or not at all.
        facts: more plain data to keep beside the weights, such as the data they were trained on.
    """
    tensors = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    metadata = {"driftlaw": json.dumps(dict(model.info) | dict(facts or {}), sort_keys=True)}
    with atomic_path(path) as temporary:
        save_file(tensors, temporary, metadata=metadata)


def weights_sha256(model: nn.Module) -> str:
    """Return a hash of all parameters and buffers, the same whatever file or device they came from."""
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        array = value.detach().cpu().contiguous()
        digest.update(f"{name} {array.dtype} {tuple(array.shape)}\n".encode())
        digest.update(array.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _find(name_or_path: str | os.PathLike[str], folder: str | os.PathLike[str] | None) -> Path:
    path = Path(name_or_path)
    if path.is_file():
        return path
    known = list_weights(folder)
    if str(name_or_path) in known:
        return known[str(name_or_path)]
    raise UsageError(_missing(str(name_or_path), known, data_dir(folder) / "weights"))


def _missing(name: str, known: Mapping[str, Path], place: Path) -> str:
    architecture = name.split("-")[0]
    if architecture in [info.name for info in list_models()]:
        dataset = name.partition("-")[2] or "cifar10"
        command = f"driftlaw train --dataset {dataset} --model {architecture}"
        return f"no trained weights «{name}» in {place}: make them with `{command}`, or give the path of a file"
    hint = suggest(name, known)
    return f"no weights «{name}»: {hint}Give the path of a file, or one of: {', '.join(known) or 'none here yet'}"


def _from_safetensors(path: Path) -> nn.Module:
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
        tensors = load_file(path)
    except (SafetensorError, OSError) as error:
        raise DataError(f"{path} is not a whole safetensors file ({error}): fetch or make it again") from error
    if "driftlaw" not in metadata:
        return _from_names(tensors, path)
    info = json.loads(metadata["driftlaw"])
    model = build_model(info["name"], num_classes=info["num_classes"], normalise=info["normalise"])
    _fill(model, tensors, path)
    model.info = info
    return model


def _from_checkpoint(path: Path) -> nn.Module:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises half a dozen kinds for a file it cannot read
        reason = str(error).partition("\n")[0]  # what follows is advice to trust the file
        raise DataError(f"{path} cannot be read as a torch checkpoint of plain tensors: {reason}") from error
    for key in ("state_dict", "model", "net"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping) or not all(isinstance(value, Tensor) for value in content.values()):
        raise DataError(f"{path} holds no state dict: expected names and tensors, or these under «state_dict»")
    return _from_names(content, path)


def _from_names(tensors: Mapping[str, Tensor], path: Path) -> nn.Module:
    """Build the network that the names and shapes of a bare state dict speak of."""
    renamed = {_our_name(name): value for name, value in tensors.items()}
    stem = renamed.get("stages.0.0.conv1.weight")
    head = renamed.get("head.weight")
    if stem is None or head is None:
        names = ", ".join(list(tensors)[:4])
        raise DataError(f"{path} is of no network known here (its names start {names}): expected a wide resnet's")
    blocks = 1 + max(int(name.split(".")[2]) for name in renamed if name.startswith("stages.0."))
    normalise = {key: renamed.pop(key).flatten().tolist() for key in ("mean", "std") if key in renamed}
    name = f"wrn_{6 * blocks + 4}_{stem.shape[0] // 16}"
    model = build_model(name, num_classes=head.shape[0], normalise=normalise or None)
    _fill(model, renamed, path)
    return model


_RENAMED = (  # RobustBench's name for a part of a wide resnet, ours
    (r"^module\.", ""),
    (r"^model\.", ""),
    (r"^mu$", "mean"),
    (r"^sigma$", "std"),
    (r"^block(\d)\.layer\.(\d+)\.", lambda m: f"stages.{int(m[1]) - 1}.{m[2]}."),
    (r"(^|\.)bn(\d)\.", lambda m: f"{m[1]}norm{m[2]}."),
    (r"^norm1\.", "norm."),
    (r"^conv1\.", "conv."),
    (r"\.convShortcut\.", ".shortcut."),
    (r"^fc\.", "head."),
)


def _our_name(name: str) -> str:
    for pattern, replacement in _RENAMED:
        name = re.sub(pattern, replacement, name)
    return name


def _fill(model: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    own = model.state_dict()
    problems = [
        f"{name}: expected {_shape(own.get(name))}, found {_shape(tensors.get(name))}"
        for name in own | dict(tensors)
        if _shape(own.get(name)) != _shape(tensors.get(name)) and not name.endswith("num_batches_tracked")
    ]
    if problems:
        raise DataError(str(collected(f"{path} does not fit {model.info['name']}:", problems[:8])))
    model.load_state_dict(tensors, strict=False)


def _shape(value: Tensor | None) -> str:
    return "nothing" if value is None else str(tuple(value.shape))
