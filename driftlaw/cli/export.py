"""``driftlaw export``: write an adapted model for a device that only runs inference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from driftlaw.cli.console import echo
from driftlaw.cli.options import AsJson, Checkpoint, DataDir, Normalize
from driftlaw.errors import DataError, UsageError

if TYPE_CHECKING:
    from torch import nn

    from driftlaw.base import Adapter
    from driftlaw.export import ExportResult


def export(
    weights: Annotated[
        str,
        typer.Argument(
            metavar="WEIGHTS_OR_STATE",
            help="Network as for `driftlaw run --network`: a name or file of weights, timm:NAME, mynet.py:make, …; or "
            "the saved state of an adapter.",
        ),
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="File to write: .pt2, .onnx or .safetensors.")],
    state: Annotated[Path | None, typer.Option(help="Saved state of an adapter created from the weights.")] = None,
    network: Annotated[
        str | None,
        typer.Option(
            "--network",
            "--model",
            help="With the state of an adapter: its weights or architecture, such as wrn_16_1. With weights: their "
            "architecture, if the file does not store it.",
        ),
    ] = None,
    checkpoint: Checkpoint = None,
    normalize: Normalize = None,
    calibrate: Annotated[
        str | None,
        typer.Option(
            metavar="DATASET|FOLDER|PRESET",
            help="Images for the BatchNorm statistics: a dataset, a folder of images, or a preset's stream.",
        ),
    ] = None,
    images: Annotated[int, typer.Option(min=1, help="Maximum number of calibration images.")] = 256,
    image_size: Annotated[
        int | None,
        typer.Option(help="Height and width of images, for a network that does not state it (default: 224)."),
    ] = None,
    device: Annotated[str, typer.Option(help="Device that the file is for: cpu, cuda, …")] = "cpu",
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Write a model with fixed BatchNorm statistics and folded layers, for batches of any size.

    With --calibrate, statistics are computed from random images of a dataset, the last images of a stream, or the
    newest images of a folder. A folder with one sub-folder per class is treated as a dataset. The file is read back
    and compared with the model. If their logits differ, the file is deleted and the exit code is 1.

    For example:

    driftlaw export wrn_16_1-cifar10 camera.pt2 --state adapter.pt --calibrate recent-frames/

    driftlaw export adapter.pt camera.onnx --network wrn_16_1-cifar10 --calibrate embedded --images 512

    driftlaw export mynet.py:make camera.pt2 --checkpoint mynet.pth --image-size 32
    """
    from driftlaw.export import export_adapter, export_model, find_format
    from driftlaw.export.calibration import choose_calibration
    from driftlaw.hardware import pick_device

    find_format(out)
    source_model, adapter = _load(weights, state, network, checkpoint, normalize, data_dir)
    if image_size is not None:
        source_model.info = {**getattr(source_model, "info", {}), "input_size": image_size}  # type: ignore[assignment]
    target = pick_device(device)
    calibration = choose_calibration(source_model, adapter, calibrate, images, device=target, data_dir=data_dir)
    if calibration.note:
        echo(f"driftlaw: {calibration.note}", err=True)
    options = {"statistics": calibration.statistics, "metadata": {"calibration": calibration.origin}}
    if adapter is not None:
        adapter.to(target)
        inputs = adapter.inputs.from_unit(calibration.images, adapter.model)
        result = export_adapter(adapter, out, inputs, **options)  # type: ignore[arg-type]
    else:
        result = export_model(source_model.to(target), out, calibration.images.float(), **options)  # type: ignore[arg-type]
    echo(json.dumps(result.as_dict()) if as_json else _describe(result))


def _load(
    weights: str,
    state: Path | None,
    network: str | None,
    checkpoint: Path | None,
    normalize: str | None,
    data_dir: Path | None,
) -> tuple[nn.Module, Adapter | None]:
    """Return the source model, and the adapter if there is a saved state."""
    from driftlaw.export import load_model_for_state, read_state, restore_adapter
    from driftlaw.models import load_model

    if Path(weights).is_file() and not weights.endswith(".safetensors"):
        try:
            saved = read_state(weights)
        except DataError:
            pass  # weights, or an unknown file: load_model reports which
        else:
            if state is not None:
                raise UsageError(f"{weights} is already the state of an adapter. Omit --state, or pass weights first.")
            source_model = load_model_for_state(
                saved, network, normalize=normalize, folder=data_dir, checkpoint=checkpoint
            )
            return source_model, restore_adapter(source_model, saved)
    source_model = load_model(
        weights, architecture=network, normalize=normalize, folder=data_dir, checkpoint=checkpoint
    )
    return source_model, None if state is None else restore_adapter(source_model, read_state(state))


def _describe(result: ExportResult) -> str:
    metadata, steps = result.metadata, result.metadata["steps"]
    method = f"{metadata['method']} after {steps} step{'s' * (steps != 1)}" if metadata["method"] else "not adapted"
    lines = [
        f"{result.path} ({result.format}, {result.bytes / 1024:,.0f} KiB)",
        f"model: {metadata['network']}, {method}",
        f"BatchNorm layers: {result.folded} folded into convolutions, {result.scaled} replaced by scale and shift",
        f"largest difference of logits: {result.max_difference:.1e} on {result.images} images",
    ]
    return "\n".join(lines if result.folded + result.scaled else [*lines[:2], lines[3]])
