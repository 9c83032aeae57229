"""``driftlaw export``: the adapted network for a device that only infers."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from driftlaw.errors import DataError, UsageError, unknown

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from driftlaw.base import Adapter
    from driftlaw.export import Exported

UNCALIBRATED = 8
"""Made-up images that answers are compared on where no others are given."""


def export(
    weights: Annotated[
        str,
        typer.Argument(
            metavar="WEIGHTS_OR_STATE",
            help="Weights as `driftlaw list weights` names them or a file of them; or a saved adapter's state.",
        ),
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The file to write: .pt2, .onnx or .safetensors.")],
    state: Annotated[
        Path | None, typer.Option(help="The state of an adapter that was made from the weights, laid over them.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="For a state alone: the weights it was adapted from, or their network, such as wrn_16_1; for weights "
            "that do not say: their network."
        ),
    ] = None,
    normalize: Annotated[
        str | None, typer.Option(help="The input normalisation, such as half, for weights that do not say.")
    ] = None,
    calibrate: Annotated[
        str | None,
        typer.Option(
            metavar="DATASET|FOLDER|PRESET",
            help="Whose images BatchNorm's statistics are taken from: a dataset, a folder of pictures, or a stream.",
        ),
    ] = None,
    images: Annotated[int, typer.Option(min=1, help="How many of them.")] = 256,
    device: Annotated[str, typer.Option(help="The device that the file is for: cpu, cuda, …")] = "cpu",
    data_dir: Annotated[Path | None, typer.Option(help="Where the data lies; DRIFTLAW_DATA by default.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
) -> None:
    """Write a network that answers images alone: statistics fixed, BatchNorm folded, any number of images at once.

    Of a dataset a random choice of images is taken, of a stream the last ones, of a folder the newest pictures, or a
    random choice where it holds a sub-folder a class. The file is read back and its answers are compared with the
    network's; where they differ it is not kept, and the exit code is 1.

    Such as

    driftlaw export wrn_16_1-cifar10 camera.pt2 --state adapter.pt --calibrate recent-frames/

    driftlaw export adapter.pt camera.onnx --model wrn_16_1-cifar10 --calibrate embedded --images 512
    """
    import torch

    from driftlaw.export import export_adapter, export_network, find_format
    from driftlaw.hardware import pick_device

    find_format(out)
    network, adapter = _subject(weights, state, model, normalize, data_dir)
    place = pick_device(device)
    chosen, kind, origin = _images(network, adapter, calibrate, images, place, data_dir)
    facts = {"calibration": origin}
    if adapter is not None:
        done = export_adapter(adapter.to(place), out, chosen, statistics=kind, facts=facts)
    else:
        done = export_network(network.to(place), out, chosen.to(torch.float32), statistics=kind, facts=facts)
    if as_json:
        print(json.dumps(done.as_dict()))
    else:
        print(_told(done))


def _told(done: Exported) -> str:
    steps = "1 step" if done.facts["steps"] == 1 else f"{done.facts['steps']} steps"
    method = f"{done.facts['method']} after {steps}" if done.facts["method"] else "as trained"
    layers = f"; BatchNorm: {done.folded} folded, {done.scaled} a scale and shift" if done.folded + done.scaled else ""
    return (
        f"{done.path} ({done.format}, {done.bytes / 1024:,.0f} KiB): {done.facts['network']}, {method}{layers}; "
        f"largest difference of its answers {done.max_difference:.1e} on {done.images} images"
    )


# --- the network ---------------------------------------------------------------------------------------------------


def _subject(
    weights: str, state: Path | None, model: str | None, normalize: str | None, data_dir: Path | None
) -> tuple[nn.Module, Adapter | None]:
    """Return the source network, and the adapter where there is a state to lay over it."""
    from driftlaw.export import read_state, restore_adapter
    from driftlaw.models import load_model

    alone = _state_alone(weights)
    if alone is not None:
        if state is not None:
            raise UsageError(
                f"{weights} is the state of an adapter itself: leave --state out, or name the weights first"
            )
        network = _network_of(alone, model, normalize, data_dir, weights)
        return network, restore_adapter(network, alone)
    network = load_model(weights, architecture=model, normalize=normalize, folder=data_dir)
    return network, None if state is None else restore_adapter(network, read_state(state))


def _state_alone(weights: str) -> Mapping[str, Any] | None:
    """Return the state in the file that stands where weights may stand; None where it is no state."""
    from driftlaw.export import read_state

    if not Path(weights).is_file() or weights.endswith(".safetensors"):
        return None
    try:
        return read_state(weights)
    except DataError:
        return None  # weights, or nothing: load_model says which


def _network_of(
    state: Mapping[str, Any], model: str | None, normalize: str | None, data_dir: Path | None, where: str
) -> nn.Module:
    """Return a network of the shape of a state's, from weights, or bare by the name of an architecture."""
    from driftlaw.models import list_weights, load_model
    from driftlaw.models.hub import is_of_a_library

    if model is None:
        raise UsageError(
            f"{where} is the state of an adapter, which does not say what network it is of: give the weights that it "
            "was made from as --model, such as --model wrn_16_1-cifar10"
        )
    if Path(model).is_file() or model in list_weights(data_dir) or is_of_a_library(model):
        return load_model(model, normalize=normalize, folder=data_dir)
    return _bare(state, model, normalize, where)


def _bare(state: Mapping[str, Any], architecture: str, normalize: str | None, where: str) -> nn.Module:
    from driftlaw.components.features import find_head
    from driftlaw.models import NORMALISATIONS, build_model
    from driftlaw.models.checkpoint_formats import usual_normalisation

    probe = build_model(architecture, num_classes=1)
    head = next(name for name, layer in probe.named_modules() if layer is find_head(probe))
    if f"model.{head}.weight" not in state:
        raise UsageError(f"{where} is not the state of a {architecture}: it has no «{head}»; give another --model")
    numbers = normalize or usual_normalisation(architecture)
    if numbers is None:
        raise UsageError(
            f"a state does not say what its input is normalised with, and networks such as {architecture} differ: give "
            f"the weights as --model, or --normalise with one of {', '.join(NORMALISATIONS)}"
        )
    if normalize is None:
        _say(f"{where} does not say how its input is normalised: «{numbers}» is taken, as usual for {architecture}")
    return build_model(architecture, num_classes=len(state[f"model.{head}.weight"]), normalize=numbers)


# --- calibration images --------------------------------------------------------------------------------------------


def _images(
    network: nn.Module,
    adapter: Adapter | None,
    calibrate: str | None,
    count: int,
    device: torch.device,
    data_dir: Path | None,
) -> tuple[Tensor, str, str | None]:
    """Return images, the kind of statistics that follows from them, and where they come from."""
    import torch

    if calibrate is not None:
        found = _calibration_images(calibrate, count, _side(network), device, data_dir).to(device)
        if adapter is not None and not _takes_batch_statistics(adapter):
            _say(f"{adapter.name} answers with statistics of its own: {calibrate} serves to compare answers alone")
        return found, "calibration", calibrate
    recent = adapter.recent if adapter is not None else None
    if recent is not None and recent.filled:
        _say(f"no --calibrate: statistics are those of the last {recent.filled} images that the adapter remembers")
        return recent.images[-recent.filled :].to(device), "calibration", "the adapter's window"
    if adapter is None or _takes_batch_statistics(adapter):
        learned = "; the adapter learned with others: images of its stream answer better" if adapter is not None else ""
        _say(f"no --calibrate: BatchNorm keeps the statistics that the network was trained with{learned}")
    side = _side(network)
    made_up = torch.rand(UNCALIBRATED, 3, side, side, generator=torch.Generator().manual_seed(0))
    return made_up.to(device), "stored", None


def _takes_batch_statistics(adapter: Adapter) -> bool:
    from driftlaw.components.batch_norm import batch_norm_layers, uses_batch_stats

    return any(uses_batch_stats(layer) for layer in batch_norm_layers(adapter.model))


def _calibration_images(name: str, count: int, side: int, device: torch.device, data_dir: Path | None) -> Tensor:
    """Return at most ``count`` images (n, 3, h, w) in [0, 1]."""
    import torch

    from driftlaw.datasets import list_datasets
    from driftlaw.settings import list_presets

    if name in list_presets() or name.endswith(".toml"):
        return _last_of_stream(name, count, device, data_dir)
    if Path(name).is_dir() and not _has_folders(Path(name)):
        pixels = _newest_pictures(Path(name), count, side)
    else:
        known = [info.name for info in list_datasets()]
        dataset = f"folder:{name}" if Path(name).is_dir() else name
        if dataset not in known and not dataset.startswith("folder:"):
            raise unknown("calibration set", name, [*known, *list_presets()])
        pixels = _some_of_dataset(dataset, count, data_dir)
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous().float().div(255)


def _last_of_stream(name: str, count: int, device: torch.device, data_dir: Path | None) -> Tensor:
    import torch

    from driftlaw.streams import make_stream

    stream = make_stream(name, data_dir=data_dir, device=device)
    batches = -(-count // stream.settings.batch_size) + 1  # the last one may be smaller
    found = [batch.images for batch in stream.iter_from(max(len(stream) - batches, 0))]
    return torch.cat(found)[-count:]


def _some_of_dataset(name: str, count: int, data_dir: Path | None) -> Any:
    import numpy as np

    from driftlaw.datasets import load_dataset

    source = load_dataset(name, data_dir=data_dir, split="test")
    order = np.random.default_rng(0).permutation(len(source))  # datasets on disk often come class by class
    return source.images(order[:count])


def _has_folders(folder: Path) -> bool:
    return any(child.is_dir() and not child.name.startswith(".") for child in folder.iterdir())


def _newest_pictures(folder: Path, count: int, side: int) -> Any:
    """Return the newest pictures of a folder, their middle in the size that the network was trained on."""
    from PIL import Image, ImageOps

    from driftlaw.datasets.image_files import SUFFIXES, read_pictures

    files = [path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES and not path.name.startswith(".")]
    if not files:
        raise DataError(f"no pictures in {folder}: expected files that end in {', '.join(sorted(SUFFIXES))}")
    newest = sorted(files, key=lambda path: (os.stat(path).st_mtime_ns, path.name))[-count:]
    return read_pictures(
        newest, (side, side), lambda picture: ImageOps.fit(picture, (side, side), Image.Resampling.BILINEAR)
    )


def _side(network: nn.Module) -> int:
    """Return the side of the images that a network was trained on, as far as its name or its library tells."""
    from driftlaw.models import list_models

    info = getattr(network, "info", {})
    name = str(info.get("name", ""))
    known = {found.name: found.input_size for found in list_models()}
    small = name.startswith(("wrn_", "resnext_")) or name.endswith("_cifar")
    return info.get("input_size") or known.get(name) or (32 if small else 224)


def _say(text: str) -> None:
    print(f"driftlaw: {text}", file=sys.stderr)
