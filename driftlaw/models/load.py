"""Weights on disk: safetensors files that say what network they belong to, and other people's checkpoints by name."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from driftlaw.errors import DataError, UsageError, collected, suggest
from driftlaw.files import atomic_path
from driftlaw.models.checkpoint_formats import (
    Told,
    infer_architecture,
    known_family,
    our_names,
    published_normalisation,
    take_normalisation,
    usual_normalisation,
)
from driftlaw.models.hub import is_of_a_library, load_from_library
from driftlaw.models.normalize import NORMALISATIONS, make_normalise, same_normalisation, told
from driftlaw.models.registry import PUBLIC_WEIGHTS, build_model, list_models
from driftlaw.paths import ASSETS, data_dir

Normalisation = str | Mapping[str, Any]

WITH_AUGMIX = ("resnext_29_4x32", "wrn_40_2")
"""Networks of the benchmarks that were trained with AugMix; the others with crops and flips alone."""
TRAINED_ON = ("cifar10", "cifar100")
"""What the networks of the benchmarks were trained on; a name that ends in anything else was given by a person."""
LARGEST_TRAINED = 32
"""The side of the largest images that ``driftlaw train`` makes networks for."""


def list_weights(folder: str | os.PathLike[str] | None = None) -> dict[str, Path]:
    """Return the trained weights at hand, by name: those that ship with the package, then those in the data folder."""
    places = [ASSETS, data_dir(folder) / "weights"]
    return {path.stem: path for place in places for path in sorted(place.glob("*.safetensors"))}


def load_model(
    name_or_path: str | os.PathLike[str],
    *,
    num_classes: int | None = None,
    folder: str | os.PathLike[str] | None = None,
    architecture: str | None = None,
    normalize: Normalisation | None = None,
) -> nn.Module:
    """Return a trained network in eval mode; images in [0, 1] go in, normalisation is its first layer.

    Args:
        name_or_path: a name of ``list_weights``; a ``.safetensors`` file or a torch checkpoint (read with
            ``weights_only=True``), with the names of RobustBench, AugMix, TTT++ or torchvision; or
            ``torchvision:NAME``, ``torchvision:NAME@WEIGHTS``, ``timm:NAME``, ``hf:NAME``.
        num_classes: what the caller expects; a network with another number is refused.
        folder: the data folder, where it is not the default one.
        architecture: a name such as ``resnext_29_4x32``, for a file that does not say; by default it is told from names
            and shapes.
        normalize: a name such as ``"half"`` or numbers, for a file that does not say; where the weights do say, another
            normalisation is refused.
    """
    if is_of_a_library(name_or_path):
        if architecture is not None:
            raise UsageError(f"architecture={architecture!r} is for files: «{name_or_path}» names its own network")
        where, model = str(name_or_path), load_from_library(str(name_or_path))
        if normalize is not None:
            _refuse_another(Told(model.info["normalise"], "its own metadata"), normalize, where)
    else:
        path = _find(name_or_path, folder)
        where, model = str(path), _build(_read(path), architecture, normalize)
        model.info["weights"] = path.stem
    found = model.info["num_classes"]
    if num_classes is not None and num_classes != found:
        raise UsageError(f"{where} answers {found} classes, expected {num_classes}: take other weights")
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
        rights = temporary.stat().st_mode
        save_file(tensors, temporary, metadata=metadata)
        temporary.chmod(rights)  # safetensors replaces the file by one that only its owner can read


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
    if name in PUBLIC_WEIGHTS:
        return f"no weights «{name}» in {place}: fetch them with `driftlaw data get {name}`"
    architecture = name.split("-")[0]
    size = {info.name: info.input_size for info in list_models()}.get(architecture)
    if size is not None and size > LARGEST_TRAINED:
        ways = f"`torchvision:NAME`, or one of {', '.join(PUBLIC_WEIGHTS)} with `driftlaw data get`"
        return f"no trained weights «{name}» in {place}: give the path of a file, {ways}"
    if size is not None:
        stem = name.removesuffix(".safetensors")
        trained_on = stem.partition("-")[2]
        dataset = next((known for known in reversed(TRAINED_ON) if trained_on.startswith(known)), TRAINED_ON[0])
        command = f"driftlaw train --dataset {dataset} --model {architecture}"
        if architecture in WITH_AUGMIX:
            command += " --set augmentation=augmix --set normalize=half"
        if trained_on not in ("", dataset):  # a name that somebody gave
            command += f" --out {shlex.quote(str(place / f'{stem}.safetensors'))}"
        return f"no trained weights «{name}» in {place}: make them with `{command}`, or give the path of a file"
    hint = suggest(name, [*known, *PUBLIC_WEIGHTS])
    return f"no weights «{name}»: {hint}Give the path of a file, or one of: {', '.join(known) or 'none here yet'}"


@dataclass(frozen=True)
class _Content:
    """What a file of weights holds.

    Attributes:
        path: the file.
        tensors: the state dict, under the file's own names.
        fields: what else a torch checkpoint holds, by name.
        info: our own metadata, where the file has them.
    """

    path: Path
    tensors: Mapping[str, Tensor]
    fields: Mapping[str, Any]
    info: dict[str, Any] | None = None


def _read(path: Path) -> _Content:
    return _read_safetensors(path) if path.suffix == ".safetensors" else _read_checkpoint(path)


def _read_safetensors(path: Path) -> _Content:
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
        tensors = load_file(path)
    except (SafetensorError, OSError) as error:
        raise DataError(f"{path} is not a whole safetensors file ({error}): fetch or make it again") from error
    info = json.loads(metadata["driftlaw"]) if "driftlaw" in metadata else None
    return _Content(path, tensors, {}, info)


def _read_checkpoint(path: Path) -> _Content:
    try:
        with _harmless_settings():
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises half a dozen kinds for a file it cannot read
        reason = str(error).partition("\n")[0]  # what follows is advice to trust the file
        raise DataError(f"{path} cannot be read as a torch checkpoint of plain tensors: {reason}") from error
    fields = content if isinstance(content, Mapping) else {}
    for key in ("state_dict", "model", "net"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping) or not all(isinstance(value, Tensor) for value in content.values()):
        raise DataError(f"{path} holds no state dict: expected names and tensors, or these under «state_dict»")
    return _Content(path, content, fields)


@contextlib.contextmanager
def _harmless_settings() -> Iterator[None]:
    """Let a checkpoint hold the settings of its training: TTT++'s are an argparse namespace, plain data."""
    trusted = torch.serialization
    before = trusted.get_safe_globals()
    trusted.add_safe_globals([argparse.Namespace])
    try:
        yield
    finally:
        trusted.clear_safe_globals()
        trusted.add_safe_globals(before)


def _build(content: _Content, architecture: str | None, normalize: Normalisation | None) -> nn.Module:
    if content.info is None:
        return _from_names(content, architecture, normalize)
    info, where = content.info, str(content.path)
    if architecture not in (None, info["name"]):
        raise UsageError(f"{where} is of the network {info['name']}, asked for {architecture}: leave architecture out")
    if normalize is not None:
        _refuse_another(Told(info["normalise"], "its own metadata"), normalize, where)
    model = build_model(info["name"], num_classes=info["num_classes"], normalize=info["normalise"])
    _fill(model, content.tensors, content.path)
    model.info = info
    return model


def _from_names(content: _Content, architecture: str | None, normalize: Normalisation | None) -> nn.Module:
    """Build the network that the names and shapes of a bare state dict speak of."""
    where = str(content.path)
    tensors, found = our_names(content.tensors)
    family = known_family(found, content.tensors, where)
    name = architecture or infer_architecture(tensors, family, where)
    said = take_normalisation(tensors) or published_normalisation(content.path.stem, name, content.fields)
    classes = len(tensors[family.head])
    model = build_model(name, num_classes=classes, normalize=_decide(said, normalize, name, where))
    _fill(model, tensors, content.path)
    return model


def _decide(said: Told | None, asked: Normalisation | None, architecture: str, where: str) -> Normalisation:
    """Return the normalisation that the weights speak of, else the one asked for, else the habit of their kind."""
    if said is not None and asked is not None:
        _refuse_another(said, asked, where)
    if said is not None:
        return said.normalize
    usual = asked if asked is not None else usual_normalisation(architecture)
    if usual is None:
        raise UsageError(
            f"{where} does not say what its input was normalised with, and networks such as {architecture} differ: "
            f"give normalize=, a name ({', '.join(NORMALISATIONS)}) or mean and std"
        )
    return usual


def _refuse_another(said: Told, asked: Normalisation, where: str) -> None:
    own, wanted = make_normalise(said.normalize), make_normalise(asked)
    if not same_normalisation(own, wanted):
        raise UsageError(
            f"{where} was trained with the normalisation {told(own)}, according to {said.why}; asked for "
            f"{told(wanted)}: leave normalize out, or take weights that were trained with the other one"
        )


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
