"""Published weights in the data directory: downloads a package, converts it, compares and stores the weights."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from torch import nn

from driftlaw import paths
from driftlaw.errors import DataError, DriftlawError
from driftlaw.files import writable_folder
from driftlaw.models import PUBLIC_WEIGHTS, save_model, weights_sha256


def fetch_public_weights(
    name: str,
    file_name: str,
    download: Callable[[Path], Path],
    convert: Callable[[Path], nn.Module],
    data_dir: str | os.PathLike[str] | None = None,
) -> Path:
    """Return the path of converted weights; download and convert them if the file does not exist.

    Args:
        name: A key of ``PUBLIC_WEIGHTS``.
        file_name: File of the package. If the data directory contains it, nothing is downloaded.
        download: Downloads this file into a folder and returns its path.
        convert: Returns the model from this file.
        data_dir: Data directory; see ``driftlaw.paths.data_dir``.

    Raises:
        DataError: The package cannot be downloaded, or its content differs from the published one.
    """
    folder, weights = paths.data_dir(data_dir), PUBLIC_WEIGHTS[name]
    target = folder / "weights" / f"{name}.safetensors"
    if target.is_file():
        return target
    local = folder / file_name
    with tempfile.TemporaryDirectory(dir=writable_folder(folder), prefix=".package-") as temporary:
        try:
            package = local if local.is_file() else download(Path(temporary))
        except DataError as error:
            raise DataError(f"{error} Or put {local.name} into {local.parent} and run the command again.") from error
        model = convert(package)
    if weights_sha256(model) != weights.weights_sha256:
        raise DataError(f"The converted weights of {package.name} are not the published ones.")
    metadata = {"dataset": "imagenet", "origin": weights.origin, "licence": weights.licence}
    save_model(model, target, metadata=metadata | {"input_size": weights.input_size})
    return target


def main(
    description: str | None, fetch: Callable[..., Path], client: str, arguments: Sequence[str] | None = None
) -> None:
    """Command of a tool: download and convert weights and print their path.

    Args:
        description: Text of ``--help``.
        fetch: Called with the data directory and ``client=``, the program that downloads.
        client: Default of this program.
        arguments: Command-line arguments; by default those of the process.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, help="data directory (default: $DRIFTLAW_DATA, then the user cache)")
    parser.add_argument("--client", "--npm-client", default=client, help=f"program that downloads (default: {client})")
    options = parser.parse_args(arguments)
    try:
        print(fetch(options.data_dir, client=options.client))
    except DriftlawError as error:
        sys.exit(f"error: {error}")
