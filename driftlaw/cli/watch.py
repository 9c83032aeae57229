"""``driftlaw watch``: predicts images as they arrive in a folder, or frames of a video or camera."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from driftlaw.cli import options as opt
from driftlaw.cli.console import echo, is_quiet
from driftlaw.errors import UsageError

if TYPE_CHECKING:
    from driftlaw.records.jsonl import Line


def watch(
    source: Annotated[str, typer.Argument(metavar="FOLDER|CAMERA|VIDEO", help="Folder, camera number, file or URL.")],
    method: opt.Method = None,
    network: opt.ServedNetwork = "embedded",
    checkpoint: opt.Checkpoint = None,
    normalize: opt.Normalize = None,
    set_: opt.Set = None,
    guard: opt.Guard = False,
    image_size: opt.ImageSize = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Most waiting images that are predicted together.")] = 1,
    adapt_every: Annotated[int, typer.Option(min=1, help="Update on every n-th batch; only predict the others.")] = 1,
    out: Annotated[Path | None, typer.Option(help="Output file (default: in runs/watch, and stdout).")] = None,
    label_maps: Annotated[
        Path | None, typer.Option(help="Folder for label maps (PNG), if the network predicts a class per pixel.")
    ] = None,
    overlays: Annotated[
        Path | None, typer.Option(help="Folder for images mixed with the colors of their classes (PNG).")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="End when all images in the folder have a line.")] = False,
    device: opt.Device = "auto",
    data_dir: opt.DataDir = None,
    checkpoint_seconds: opt.CheckpointSeconds = 30.0,
) -> None:
    """Adapt to images as they arrive, and write one JSON line with the prediction of each image.

    The same command continues after an interruption, also after kill -9: with the next image, and with the adapter as
    it was. No image is predicted twice. A file that cannot be read gets a line with the reason.

    A network that predicts a class per pixel gives the share of pixels of every class. --label-maps and --overlays
    write images.

    A video or camera needs OpenCV (pip install opencv-python-headless). Images that do not have the size of the
    network's input are resized, and cropped if the network predicts one class per image.

    For example:

    driftlaw watch photos/ --once --out predictions.jsonl

    driftlaw watch incoming/ --network timm:resnet50 --method tent --guard

    driftlaw watch 0 --adapt-every 15 --set law.learning_rate=2e-4

    driftlaw watch drive.mp4 --network street.pth --image-size 360x480 --label-maps labels/ --overlays overlays/
    """
    from driftlaw.cli.adapter import load_adapter
    from driftlaw.models import weights_sha256
    from driftlaw.records.jsonl import content_hash, dump_line
    from driftlaw.serving.class_names import class_names
    from driftlaw.serving.image_sources import FolderSource, VideoSource, is_live
    from driftlaw.serving.network_input import choose_input
    from driftlaw.serving.watch import Watch

    path = Path(source)
    if not path.exists() and not is_live(source):
        raise UsageError(f"{source} does not exist. Expected a folder, a video file or the number of a camera.")
    folders = [folder.resolve() for folder in (label_maps, overlays) if folder is not None]
    if len(set(folders)) < len(folders) or any(folder.is_relative_to(path.resolve()) for folder in folders):
        raise UsageError("--label-maps and --overlays need different folders that are not in the watched one.")
    adapter, model = load_adapter(
        method, network, checkpoint, normalize, set_ or [], guard=guard, device=device, data_dir=data_dir
    )
    size = choose_input(adapter, model, image_size)
    if (label_maps or overlays) and not size.is_dense:
        raise UsageError("--label-maps and --overlays need a network that predicts a class per pixel.")
    place, name = (str(path.resolve()), path.resolve().name) if path.exists() else (source, "camera")
    identity: Line = {"source": place, "model": weights_sha256(model), "method": adapter.name}
    identity |= {
        "image_size": list(size[:2]),
        "settings": adapter.config.model_dump(mode="json"),
        "batch_size": batch_size,
        "adapt_every": adapt_every,
    }
    default = Path("runs", "watch", f"{name}-{adapter.name}-{content_hash(identity)[:8]}.jsonl")
    watched = Watch(
        adapter,
        out or default,
        identity,
        class_names=class_names(model),
        batch_size=batch_size,
        adapt_every=adapt_every,
        label_maps=label_maps,
        overlays=overlays,
    )
    before = watched.lines
    if before and not is_quiet():
        echo(f"Resumed after {before} images.", err=True)
    images = (
        FolderSource(path, size, once=once, done=watched.done)
        if path.is_dir()
        else VideoSource(place, size, start=watched.next_frame)
    )

    def print_line(line: Line) -> None:
        if out is None:
            sys.stdout.write(dump_line(line).decode())
            sys.stdout.flush()

    try:
        watched.run(images, checkpoint_seconds=checkpoint_seconds, on_line=print_line)
    finally:
        if not is_quiet():
            echo(f"{watched.lines - before} images, {adapter.steps} updates. Lines are in {watched.path}.", err=True)
