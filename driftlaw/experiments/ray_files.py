"""Files that runs read, and how they get to the nodes of a Ray cluster that lack them: by sha256, once per node."""

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from driftlaw.datasets import ARCHIVES, dataset_info
from driftlaw.datasets.archives import archive_folder
from driftlaw.datasets.shards import SEPARATOR, expand_braces
from driftlaw.errors import UsageError
from driftlaw.experiments.run_spec import RunSpec
from driftlaw.files import atomic_path, imported_file, sha256_of
from driftlaw.methods import registered_methods
from driftlaw.models import list_weights
from driftlaw.models.hub import is_hub_name
from driftlaw.paths import PACKAGE
from driftlaw.records.jsonl import content_hash
from driftlaw.torch_files import cache_dir

MAX_SENT_BYTES = 2**30
"""Largest total size of files that are sent to nodes, and up to which contents are compared, not only sizes."""
DATA, FOLDER, METHODS = "data", "folder", "methods"  # on a node: data directory, current folder, files of methods

SentFiles = Mapping[str, tuple[str, Any]]
"""Path on a node, relative to a common folder, to the sha256 of a file and the Ray object with its content."""


def needed_files(spec: RunSpec, data_dir: Path) -> dict[str, Path]:
    """Return the files and folders that a run reads, by their place on a node that lacks them.

    Files of the package, and models of torchvision, timm and transformers, are not among them.
    """
    found: dict[str, Path] = {}

    def add(path: Path | str) -> None:
        """Add a path that the user named. Python files may import their neighbours."""
        files = Path(path).resolve().parent.glob("*.py") if str(path).endswith(".py") else [Path(path)]
        found.update({f"{FOLDER}/{os.path.join(os.path.dirname(path), file.name)}": file for file in files})

    def add_dataset(name: str, split: str) -> None:
        kind, _, path = name.partition(":")
        if kind in ("folder", "archive"):
            add(path)
        elif kind == "shards":  # a node reads addresses such as s3://… itself
            for shard in [each for part in path.split(SEPARATOR) for each in expand_braces(part) if "://" not in each]:
                add(shard)
        elif name in ARCHIVES:
            found[f"{DATA}/{ARCHIVES[name].folder}"] = archive_folder(name, data_dir)
        elif (place := dataset_info(name).find(split, data_dir)) is not None:
            found[f"{DATA}/{place.relative_to(data_dir)}"] = place

    weights, checkpoint, archive = spec.model["weights"], spec.model.get("checkpoint"), spec.stream.get("archive")
    if is_hub_name(weights):
        if ".py" in weights:
            add(weights.rpartition(":")[0] if ".py:" in weights else weights)
    elif os.path.isfile(weights):
        add(weights)
    elif not (place := list_weights(data_dir).get(weights, PACKAGE)).is_relative_to(PACKAGE):
        found[f"{DATA}/weights/{place.name}"] = place
    if checkpoint:
        add(checkpoint)
    add_dataset(spec.stream.get("dataset", "cifar10-embedded"), "test")
    if archive:
        add_dataset(archive if archive in ARCHIVES else f"archive:{archive}", "test")
    if spec.needs_train_data:
        add_dataset(spec.train_dataset, "train")
    if file := method_file(spec):
        found |= {f"{METHODS}/{name.relative_to('/')}": name for name in file.parent.glob("*.py")}
    return found


def method_file(spec: RunSpec) -> Path | None:
    """Return the Python file of a user's method, or None for a method of the package."""
    module = registered_methods()[spec.method].__module__
    return Path(str(sys.modules[module].__file__)).resolve() if imported_file(module) else None


def files_in(path: Path) -> list[Path]:
    """Return the file, or the files of a folder and its sub-folders in order; empty if there is none."""
    return sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path] * path.is_file()


def fingerprint(path: Path) -> str:
    """Return a hash of names, sizes and, up to ``MAX_SENT_BYTES``, contents of a file or of the files in a folder."""
    files = [(file, file.stat().st_size) for file in files_in(path)]
    small = sum(size for _, size in files) <= MAX_SENT_BYTES
    return content_hash([[str(file.relative_to(path)), size, small and sha256_of(file)] for file, size in files])


def missing_files(fingerprints: Mapping[str, str]) -> list[str]:
    """Return the paths whose content on this node differs from the caller's. Runs on a node."""
    return [path for path, expected in fingerprints.items() if fingerprint(Path(path)) != expected]


def send_files(needed: Mapping[str, Path], lacking: Sequence[str]) -> SentFiles:
    """Put the files of some runs into Ray's object store, for nodes that lack them.

    Args:
        needed: result of ``needed_files``.
        lacking: messages that name a path and a node without it.

    Raises:
        UsageError: they are too large, or have to be at a place that a node cannot have.
    """
    import ray

    advice = "Put them on a path that all nodes share, and pass --data-dir or that path."
    total = sum(file.stat().st_size for path in needed.values() for file in files_in(path))
    if total > MAX_SENT_BYTES:
        raise UsageError(
            f"{lacking[0]}. Files of {total / 1e9:.1f} GB would have to be sent, the limit is "
            f"{MAX_SENT_BYTES / 1e9:.1f} GB. {advice}"
        )
    for name in needed:  # records contain these paths as they were given
        given = name.removeprefix(f"{FOLDER}/")
        if given != name and (os.path.isabs(given) or ".." in Path(given).parts):
            raise UsageError(
                f"{lacking[0]}. {given} cannot be sent to it, because it is not in the current folder. Start the "
                f"command in a folder that contains it and pass the relative path. Or: {advice}"
            )
    sent: dict[str, tuple[str, Any]] = {}
    for name, path in needed.items():
        for file in files_in(path):
            sent[os.path.join(name, file.relative_to(path))] = (sha256_of(file), ray.put(file.read_bytes()))
    return sent


def place_files(sent: SentFiles) -> Path:
    """Return a folder of this node with the sent files; those that its cache lacks are fetched. Runs on a node."""
    import ray

    cache = cache_dir() / "ray"
    folder = cache / content_hash({name: sha256 for name, (sha256, _) in sent.items()})[:32]
    if not folder.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=cache))
        for name in (DATA, FOLDER):
            (temporary / name).mkdir()
        for name, (sha256, reference) in sent.items():
            stored, target = cache / "files" / sha256, temporary / name
            if not stored.exists():
                content: Any = ray.get(reference)
                with atomic_path(stored) as path:
                    path.write_bytes(content)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(stored, target)
        with suppress(OSError):  # another worker of the node was first
            temporary.rename(folder)
        shutil.rmtree(temporary, ignore_errors=True)
    return folder
