"""`driftlaw data`: list, download and verify datasets, archives of corrupted images and public weights."""

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import typer

from driftlaw import paths
from driftlaw.cli.console import echo
from driftlaw.cli.options import AsJson, Command, DataDir, Group
from driftlaw.errors import DataError, UsageError, unknown_name

app = typer.Typer(name="data", cls=Group, help="List, download and verify datasets.", no_args_is_help=True)

# driftlaw.models.PUBLIC_WEIGHTS would import torch.
_REGISTRY = tomllib.loads((paths.PACKAGE / "models" / "registry.toml").read_text(encoding="utf-8"))
_WEIGHTS = {
    entry["name"]: SimpleNamespace(**entry, image_size=(entry["input_size"],) * 2) for entry in _REGISTRY["weights"]
}
_TOOL = "'{name}' is made by a tool of the repository. In a checkout of driftlaw, run `{tool}`."


@app.command("list", cls=Command)
def list_(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """List datasets, archives and public weights, and which of them are on this machine.

    Example: driftlaw data list --json
    """
    rows = _rows(data_dir)
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("name", "here", "description", "classes", "splits")
    for row in rows:
        here = {True: "yes", False: "no", None: "your own"}[row["present"]]
        table.add_row(row["name"], here, row["title"], str(row["num_classes"] or "any"), ", ".join(row["splits"]))
    Console(markup=False, emoji=False).print(table)
    echo(f"Data directory: {paths.data_dir(data_dir)}")


@app.command(cls=Command)
def get(
    name: Annotated[str, typer.Argument(help="Dataset: cifar10 or cifar100.")],
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Download a dataset into the data directory, unless it is already there.

    An interrupted download resumes when the command is run again. To use a mirror, set DRIFTLAW_CIFAR10_URL or
    DRIFTLAW_CIFAR100_URL. For data that cannot be downloaded, the command says where to get it.

    Example: driftlaw data get cifar10 --data-dir ~/data
    """
    from driftlaw.cli.console import progress_bar
    from driftlaw.datasets import ARCHIVES, dataset_info
    from driftlaw.datasets.archives import archive_folder
    from driftlaw.datasets.download import download_dataset

    if name in _WEIGHTS:
        path = _weights_path(name, data_dir)
        if not path.is_file():
            raise UsageError(_TOOL.format(name=name, tool=_WEIGHTS[name].tool))
        echo(json.dumps({"name": name, "file": str(path)}, indent=2) if as_json else f"{name} is in {path}")
        return
    if name in ARCHIVES:
        raise UsageError(
            f"'{name}' has no download. Put the official files into {archive_folder(name, data_dir)}, or make it with "
            f"driftlaw's corruptions: in a checkout of driftlaw, run `{ARCHIVES[name].tool}`."
        )
    info = dataset_info(name)
    if info.in_class_folders:
        target = paths.data_dir(data_dir) / "imagenet" / "val"
        raise UsageError(f"'{name}' has no download ({info.origin}). Put its class folders into {target}.")
    if info.label_maps:
        raise UsageError(
            f"'{name}' has no download ({info.origin}). See the guide 'Segmentation data' for its folders."
        )
    if info.layout is None:
        raise UsageError(f"'{name}' needs no download: {info.origin}.")
    with progress_bar() as progress:
        task = progress.add_task("download, MiB", total=None)

        def update(received: int, total: int | None) -> None:
            progress.update(task, completed=received >> 20, total=None if total is None else total >> 20)

        folder = download_dataset(info, data_dir=data_dir, progress=update)
    echo(json.dumps({"name": name, "folder": str(folder)}, indent=2) if as_json else f"{name} is in {folder}")


@app.command(hidden=True, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
def make(name: Annotated[str, typer.Argument(help="cifar10-c, cifar100-c or cifar10-embedded.")]) -> None:
    """Print the command that makes an archive or the embedded test set; this was a command of driftlaw 0.1."""
    from driftlaw.datasets import ARCHIVES

    tools = {archive: info.tool for archive, info in ARCHIVES.items()}
    tools["cifar10-embedded"] = "python -m tools.make_embedded --out FOLDER"
    if name not in tools:
        raise unknown_name("archive", name, list(tools))
    raise UsageError(_TOOL.format(name=name, tool=tools[name]))


@app.command(cls=Command)
def verify(
    name: Annotated[str, typer.Argument(help="Dataset, archive or weights, or a folder with one.")],
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Read a dataset, archive or weights and compare them with their published checksums.

    Example: driftlaw data verify cifar10

    Example: driftlaw data verify ~/data/CIFAR-10-C
    """
    problems, checked = _problems(name, data_dir)
    if as_json:
        typer.echo(json.dumps({"name": name, "ok": not problems, "checked": checked, "problems": problems}, indent=2))
        raise typer.Exit(1 if problems else 0)
    if problems:
        raise DataError(f"'{name}' has problems:" + "".join(f"\n  - {problem}" for problem in problems))
    echo(f"{name}: ok ({checked})")


def _problems(name: str, data_dir: Path | None) -> tuple[list[str], str]:
    """Return the problems of a dataset, archive or weights, and what was compared."""
    from driftlaw.datasets import ARCHIVES, FolderArchive, LabelMapImages, dataset_info, load_dataset, open_archive
    from driftlaw.datasets.archives import MANIFEST, archive_folder
    from driftlaw.datasets.download import verify_dataset
    from driftlaw.datasets.registry import DATASETS

    if name in _WEIGHTS:
        from driftlaw.models import verify_weights

        return verify_weights(name, data_dir), "sha256 of all weights"
    if name.startswith(("folder:", "shards:")) or name in DATASETS:
        info = dataset_info(name)
        if info.layout is not None:
            return verify_dataset(info, data_dir), "sha256 of pixels and labels"
        problems = []
        dataset = load_dataset(name, data_dir=data_dir)  # compares the sha256 of the embedded images
        for index in range(len(dataset)):
            try:
                dataset.images([index])
                if isinstance(dataset, LabelMapImages):
                    dataset.label_maps([index])
            except DataError as error:
                problems.append(str(error))
        return problems, "every image and label map" if isinstance(dataset, LabelMapImages) else "every image"
    folder = archive_folder(name, data_dir)
    if name not in ARCHIVES and not folder.is_dir():
        raise unknown_name("dataset, archive, weights or folder", name, [*DATASETS, *ARCHIVES, *_WEIGHTS])
    for info in DATASETS.values():
        if name not in ARCHIVES and info.layout and any(info.find(split, folder) for split in info.splits):
            return verify_dataset(info, folder), f"sha256 of the pixels and labels of {info.name}"
    archive = open_archive(folder)
    if isinstance(archive, FolderArchive):
        return archive.verify(), "that all images exist"
    has_manifest = (folder / MANIFEST).is_file()
    return archive.verify(), "sha256 of every file" if has_manifest else "shapes and dtypes; there is no manifest"


def _rows(data_dir: Path | None) -> list[dict[str, Any]]:
    from driftlaw.datasets import ARCHIVES, list_datasets
    from driftlaw.datasets.archives import archive_folder

    def row(info: Any, kind: str, splits: Sequence[str], origin: object, present: bool | None) -> dict[str, Any]:
        known = {key: getattr(info, key) for key in ("title", "num_classes", "image_size")}
        about = {"splits": list(splits), "origin": str(origin), "licence": info.licence, "present": present}
        return {"name": info.name, "kind": kind} | known | about

    rows = []
    for info in list_datasets():
        present = None if info.name == "folder:PATH" else info.is_present(data_dir)
        rows.append(row(info, "images", info.splits, info.origin, present))
    for archive in ARCHIVES.values():
        folder = archive_folder(archive.name, data_dir)
        rows.append(row(archive, "archive", ["test"], folder, archive.is_present(data_dir)))
    for name, weights in _WEIGHTS.items():
        rows.append(row(weights, "weights", [], weights.origin, _weights_path(name, data_dir).is_file()))
    return rows


def _weights_path(name: str, data_dir: Path | None) -> Path:
    return paths.data_dir(data_dir) / "weights" / f"{name}.safetensors"
