"""Loading and saving of weights: safetensors files with metadata, and checkpoints of other projects."""

import hashlib
import json
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from driftlaw._deprecated import renamed_keywords
from driftlaw.errors import DataError, UsageError, suggest, unknown_name
from driftlaw.files import atomic_path
from driftlaw.models import checkpoint_formats as formats
from driftlaw.models.hub import is_hub_name, load_hub_model
from driftlaw.models.normalize import Normalization, NormalizationOrigin, choose_normalization
from driftlaw.models.registry import PUBLIC_WEIGHTS, PYRAMID_PREFIX, build_model, list_models
from driftlaw.models.rescale import rescale_batch_norm
from driftlaw.models.resnet import ResNet
from driftlaw.models.state_dicts import load_tensors, read_tensors
from driftlaw.paths import ASSETS, PACKAGE, data_dir

TRAINED_WITH_AUGMIX = ("resnext_29_4x32", "wrn_40_2")
"""Benchmark models that are trained with AugMix; the others with crops and flips only."""
CLONE = PACKAGE.parent
"""The repository, if driftlaw is imported from a clone."""
LARGEST_TRAINED = 32
"""Side of the largest images that the training command of the repository supports."""


def list_weights(folder: str | os.PathLike[str] | None = None) -> dict[str, Path]:
    """Return all trained weights by name: in the package, in ``weights/`` of a clone, and in the data directory.

    A name in a later folder replaces the same name in an earlier one.

    >>> list_weights("/nonexistent")["wrn_16_1-cifar10"].name
    'wrn_16_1-cifar10.safetensors'
    """
    clone = [CLONE / "weights"] if (CLONE / "pyproject.toml").is_file() else []
    folders = [path for path in (ASSETS, *clone, data_dir(folder) / "weights") if os.path.isdir(path)]
    return {path.stem: path for parent in folders for path in sorted(parent.glob("*.safetensors"))}


@renamed_keywords(normalise="normalize")
def load_model(
    name_or_path: str | os.PathLike[str],
    *,
    num_classes: int | None = None,
    folder: str | os.PathLike[str] | None = None,
    architecture: str | None = None,
    normalize: Normalization | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> nn.Module:
    """Return a trained model in eval mode. It expects images in [0, 1]; normalisation is its first layer.

    >>> load_model("wrn_16_1-cifar10")(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 10])

    Args:
        name_or_path: A name from ``list_weights``; a ``.safetensors`` file or torch checkpoint (read with
            ``weights_only=True``) with names of RobustBench, AugMix, TTT++, torchvision or EfficientNet-Lite; or
            ``torchvision:NAME``, ``torchvision:NAME@WEIGHTS``, ``timm:NAME``, ``hf:NAME``, ``smp:NAME``; or
            ``FILE.py:NAME``, a function or nn.Module class in a Python file, which is called without arguments.
            ``resnet50-imagenet`` is rescaled by 0.2, see ``driftlaw.models.rescale``; the path of its file gives the
            weights as they are stored.
        num_classes: Expected number of classes; a model with another number is rejected.
        folder: Data directory; see ``driftlaw.paths.data_dir``.
        architecture: A name such as ``resnext_29_4x32``, for files without metadata. By default it is inferred from
            names and shapes.
        normalize: A name such as ``"half"``, or numbers, for files that do not state it. If the weights state another
            normalisation, an error is raised. The network of a Python file expects images in [0, 1] by default.
        checkpoint: File with a state dict (.pth, .pt, .safetensors) for a network of torchvision, timm or a Python
            file, or for an architecture such as ``wrn_28_10``. Wrappers such as ``{"state_dict": …}`` and prefixes such
            as ``module.`` are removed.

    Raises:
        UsageError: The weights do not exist or do not match the arguments.
        DataError: The file is damaged or of an unknown architecture.
    """
    for given in (name_or_path, checkpoint, architecture):
        if not isinstance(given, str | os.PathLike | None) or given is name_or_path is None:
            raise UsageError(f"Expected the name or path of a model, found {given!r} of type {type(given).__name__}.")
    architecture = None if architecture is None else str(architecture)
    if checkpoint is not None and not os.path.isfile(checkpoint):
        raise UsageError(f"The checkpoint {checkpoint} is not a file.")
    if is_hub_name(name_or_path):
        if architecture is not None:
            raise UsageError(f"architecture={architecture!r} is for files. Omit it for '{name_or_path}'.")
        where = str(name_or_path)
        model: nn.Module = load_hub_model(where, checkpoint, normalize)
        choose_normalization(NormalizationOrigin(_info(model)["normalise"], "its metadata"), normalize, None, where)
    else:
        if checkpoint is not None:
            name_or_path, architecture = checkpoint, str(name_or_path)
        path = _find(name_or_path, folder)
        where, model = str(path), _build(path, architecture, normalize)
        _info(model)["weights"] = path.stem
        if (public := PUBLIC_WEIGHTS.get(str(name_or_path))) is not None and isinstance(model, ResNet):
            stored = _info(model).get("batch_norm_scale", 1.0)
            if stored != public.batch_norm_scale:
                rescale_batch_norm(model, public.batch_norm_scale / stored)
    found = _info(model)["num_classes"]
    if num_classes is not None and found not in (num_classes, None):
        raise UsageError(f"{where} has {found} classes, but num_classes={num_classes}. Use other weights.")
    return model.eval()


@renamed_keywords(facts="metadata")
def save_model(model: nn.Module, path: Path, *, metadata: Mapping[str, Any] | None = None) -> None:
    """Write weights, and the metadata that ``load_model`` needs: name, number of classes and normalisation.

    Args:
        model: A model made by ``build_model``.
        path: A ``.safetensors`` file; it is written atomically.
        metadata: More JSON data to store, for example the dataset of the training.
    """
    tensors = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    header = {"driftlaw": json.dumps(dict(_info(model)) | dict(metadata or {}), sort_keys=True)}
    with atomic_path(path) as temporary:
        mode = temporary.stat().st_mode
        save_file(tensors, temporary, metadata=header)
        temporary.chmod(mode)  # safetensors replaces the file by one that only its owner can read


def weights_sha256(model: nn.Module) -> str:
    """Return a hash of all parameters and buffers, independent of file format and device."""
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        array = value.detach().cpu().contiguous()
        digest.update(f"{name} {array.dtype} {tuple(array.shape)}\n".encode())
        digest.update(array.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def verify_weights(name: str, folder: str | os.PathLike[str] | None = None) -> list[str]:
    """Return the problems of public weights in the data directory: missing, damaged, or not the published ones."""
    if name not in PUBLIC_WEIGHTS:
        raise unknown_name("public weights", name, list(PUBLIC_WEIGHTS))
    try:
        found = weights_sha256(load_model(_find(name, folder)))
    except (DataError, UsageError) as error:
        return [f"{name}: {error}"]
    expected = PUBLIC_WEIGHTS[name].weights_sha256
    return [] if found == expected else [f"{name}: the weights have sha256 {found}; expected {expected}"]


def _info(model: nn.Module) -> dict[str, Any]:
    info: dict[str, Any] = model.info  # type: ignore[assignment]
    return info


def _find(name_or_path: str | os.PathLike[str], folder: str | os.PathLike[str] | None) -> Path:
    path, known = Path(name_or_path), list_weights(folder)
    if os.path.isfile(path):
        return path
    if str(name_or_path) in known:
        return known[str(name_or_path)]
    name, weights_folder = str(name_or_path), data_dir(folder) / "weights"
    missing = f"The weights '{name}' are not in {weights_folder}."
    if name in PUBLIC_WEIGHTS:
        raise UsageError(f"{missing} In a checkout of driftlaw, get them with `{PUBLIC_WEIGHTS[name].tool}`.")
    architecture = name.split("-")[0]
    size = {info.name: info.input_size for info in list_models()}.get(architecture)
    if size is None:
        hint = suggest(name, [*known, *PUBLIC_WEIGHTS])
        raise UsageError(f"There is no file or model '{name}'. {hint}Known weights: {', '.join(known)}.")
    is_segmentation = architecture.startswith(PYRAMID_PREFIX)
    if size > LARGEST_TRAINED and not is_segmentation:
        raise UsageError(f"{missing} Pass the path of a file, torchvision:NAME, or one of {', '.join(PUBLIC_WEIGHTS)}.")
    stem = name.removesuffix(".safetensors")
    suffix = stem.partition("-")[2]
    dataset = "cifar100" if suffix.startswith("cifar100") else "cifar10"
    if is_segmentation:
        dataset = f"{suffix.partition('-')[0] or 'shapes'} --task segmentation"
    command = f"python -m benchmarks train --dataset {dataset} --model {architecture}"
    if architecture in TRAINED_WITH_AUGMIX:
        command += " --set augmentation=augmix --set normalise=half"
    if suffix not in ("", dataset.partition(" ")[0]):  # a name that the user chose
        command += f" --out {shlex.quote(str(weights_folder / f'{stem}.safetensors'))}"
    raise UsageError(f"{missing} Pass the path of a file, or in a checkout of driftlaw train them with `{command}`.")


def _build(path: Path, architecture: str | None, normalize: Normalization | None) -> nn.Module:
    tensors, fields, info = read_tensors(path)
    if info is None:  # a checkpoint of another project
        tensors, family = formats.to_driftlaw_names(tensors)
        name = architecture if family and architecture else formats.infer_architecture(tensors, family, str(path))
        assert family is not None
        stated = formats.pop_normalization(tensors) or formats.published_normalization(path.stem, name, fields)
        chosen = choose_normalization(stated, normalize, formats.default_normalization(name), str(path))
        model = build_model(name, num_classes=len(tensors[family.head]), normalize=chosen)
    else:
        name = info["name"]
        if architecture not in (None, name):
            raise UsageError(f"{path} is a {name}, but architecture={architecture!r}. Omit architecture.")
        choose_normalization(NormalizationOrigin(info["normalise"], "its metadata"), normalize, None, str(path))
        model = build_model(name, num_classes=info["num_classes"], normalize=info["normalise"])
        if isinstance(model, ResNet) and "batch_norm_scale" in info:
            rescale_batch_norm(model, info["batch_norm_scale"])  # for its epsilon; the tensors are loaded below
        model.info = info  # type: ignore[assignment]
    load_tensors(model, tensors, f"{path} does not fit {name}:")
    return model
