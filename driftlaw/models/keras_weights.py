"""Keras' first ResNet-50 as TensorFlow.js stores it, ``model.json`` and shards of float32 numbers, made ours."""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from driftlaw.errors import DataError
from driftlaw.models.checkpoint_formats import FAMILIES, Family
from driftlaw.models.registry import build_model

INDEX = "model.json"
_BYTES = 4  # of a float32
_PARTS = {
    "kernel": "weight",
    "gamma": "weight",
    "bias": "bias",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
}
_BRANCHES = {
    "2a": ("conv1", "bn1"),
    "2b": ("conv2", "bn2"),
    "2c": ("conv3", "bn3"),
    "1": ("downsample.0", "downsample.1"),
}


def read_archive(tarball: Path, folder: str, *, content_sha256: str | None = None) -> dict[str, Tensor]:
    """Return the tensors of a packed TensorFlow.js network, under Keras' names and in Keras' layout.

    Args:
        tarball: the package.
        folder: where in it ``model.json`` and the shards lie.
        content_sha256: what their bytes must hash to, the index first and the shards in its order.

    Raises:
        DataError: the package is damaged, lacks a file or holds other ones than expected.
    """
    try:
        with tarfile.open(tarball, "r:*") as archive:
            files = {Path(member.name).parts[-2:]: member for member in archive if member.isfile()}
            index = _file(archive, files, folder, INDEX, tarball)
            groups = _groups(index, tarball)
            names = [name for group in groups for name in group["paths"]]
            shards = [_file(archive, files, folder, name, tarball) for name in names]
    except (tarfile.TarError, EOFError, OSError) as error:
        raise DataError(f"{tarball.name} is damaged: {error}") from error
    found = hashlib.sha256(b"".join([index, *shards])).hexdigest()
    if content_sha256 not in (None, found):
        raise DataError(f"the weights in {tarball.name} have sha256 {found}; expected {content_sha256}")
    # A group's shards are one run of numbers, cut wherever a shard was full.
    pieces = iter(shards)
    runs = [b"".join(next(pieces) for _ in group["paths"]) for group in groups]
    return {
        name: value
        for group, run in zip(groups, runs, strict=True)
        for name, value in _cut(group["weights"], run, tarball).items()
    }


def convert(tensors: Mapping[str, Tensor], *, normalize: str = "caffe") -> nn.Module:
    """Return our network with Keras' weights.

    >>> our_name("res3b_branch2a/kernel"), our_name("bn4a_branch1/moving_variance"), our_name("fc1000/bias")
    ('layer2.1.conv1.weight', 'layer3.0.downsample.1.running_var', 'fc.bias')
    """
    renamed = {our_name(name): _our_layout(value) for name, value in tensors.items()}
    architecture = _family().architecture(renamed) if {"conv1.weight", _family().mark} <= set(renamed) else None
    if architecture is None or not architecture.endswith("_keras") or "fc.weight" not in renamed:
        raise DataError(f"no ResNet of Keras' first form: found {architecture or ', '.join(list(tensors)[:4])}")
    model = build_model(architecture, num_classes=renamed["fc.weight"].shape[0], normalize=normalize)
    own = {name: value for name, value in model.state_dict().items() if not name.endswith("num_batches_tracked")}
    problems = [name for name in own | renamed if _shape(own, name) != _shape(renamed, name)]
    if problems:
        raise DataError(f"the Keras weights do not fit {architecture}: {', '.join(sorted(problems)[:8])}")
    model.load_state_dict(renamed, strict=False)
    return model.eval()


def our_name(name: str) -> str:
    """Return our name of a tensor of Keras' ResNet: blocks go by letters there, stages are counted from the stem."""
    layer, _, part = name.partition("/")
    if part in _PARTS and layer in ("conv1", "bn_conv1", "fc1000"):
        return {"conv1": "conv1", "bn_conv1": "bn1", "fc1000": "fc"}[layer] + "." + _PARTS[part]
    found = re.fullmatch(r"(res|bn)(\d)([a-z])_branch(1|2a|2b|2c)", layer)
    if found is None or part not in _PARTS:
        raise DataError(f"«{name}» is no tensor of Keras' ResNet-50")
    place = f"layer{int(found[2]) - 1}.{ord(found[3]) - ord('a')}"
    return f"{place}.{_BRANCHES[found[4]][found[1] == 'bn']}.{_PARTS[part]}"


def _our_layout(value: Tensor) -> Tensor:
    if value.ndim == 4:
        return value.permute(3, 2, 0, 1).contiguous()  # height, width, in, out -> out, in, height, width
    return value.T.contiguous() if value.ndim == 2 else value


def _family() -> Family:
    return next(family for family in FAMILIES if family.head == "fc.weight")


def _shape(tensors: Mapping[str, Tensor], name: str) -> tuple[int, ...] | None:
    return tuple(tensors[name].shape) if name in tensors else None


def _file(archive: tarfile.TarFile, files: Mapping[Any, Any], folder: str, name: str, tarball: Path) -> bytes:
    member = files.get((folder, name))
    content = archive.extractfile(member) if member else None
    if content is None:
        raise DataError(f"{tarball.name} lacks {folder}/{name}")
    with content:
        return content.read()


def _groups(index: bytes, tarball: Path) -> list[dict[str, Any]]:
    try:
        groups = json.loads(index)["weightsManifest"]
        kinds = {weights["dtype"] for group in groups for weights in group["weights"]}
        plain = all("quantization" not in weights for group in groups for weights in group["weights"])
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{INDEX} of {tarball.name} does not list weights and shards: {error}") from error
    if kinds - {"float32"} or not plain:
        raise DataError(f"{tarball.name} holds numbers other than plain float32 ones: {', '.join(sorted(kinds))}")
    return groups


def _cut(weights: list[dict[str, Any]], run: bytes, tarball: Path) -> dict[str, Tensor]:
    sizes = [_BYTES * torch.Size(entry["shape"]).numel() for entry in weights]
    if sum(sizes) != len(run):
        raise DataError(f"{tarball.name} holds {len(run):,} bytes of weights; its {INDEX} speaks of {sum(sizes):,}")
    numbers = torch.frombuffer(bytearray(run), dtype=torch.float32)
    pieces = numbers.split([size // _BYTES for size in sizes])
    return {entry["name"]: piece.reshape(entry["shape"]).clone() for entry, piece in zip(weights, pieces, strict=True)}
