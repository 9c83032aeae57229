"""Makes an archive in the layout of ImageNet-C with the package ``imagecorruptions``, to compare it with driftlaw's.

    python -m tools.imagecorruptions_archive imagenet/val imagecorruptions-c --corruptions fog,pixelate
    driftlaw run imagenet-c --set stream.archive=imagecorruptions-c --set 'stream.corruptions=["fog","pixelate"]'

The package contains the code of the authors of ImageNet-C, changed for images of any size. It needs its own environment
(``pip install imagecorruptions==1.1.2 setuptools``); driftlaw need not be installed there. The images of the first
folder must be 224×224 pixels and in one folder per class. Files that exist are kept.
"""

from __future__ import annotations

import argparse
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

SEVERITY = 5
JPEG_QUALITY = 85  # as in the published ImageNet-C


def corrupt_folder(source: Path, target: Path, corruption: str) -> int:
    """Corrupt all images of the class folders in ``source`` and return how many files were written."""
    from imagecorruptions import corrupt

    written = 0
    for path in sorted(source.glob("*/*")):
        output = target / corruption / str(SEVERITY) / path.parent.name / path.name
        if output.is_file():
            continue
        np.random.seed(zlib.crc32(f"{corruption} {path.name}".encode()))  # the package draws from it
        with Image.open(path) as image:
            pixels = corrupt(np.asarray(image.convert("RGB")), corruption_name=corruption, severity=SEVERITY)
        output.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(output, "JPEG", quality=JPEG_QUALITY)
        written += 1
    return written


def restore_removed_names() -> None:
    """Restore what the package uses and newer versions of NumPy and scikit-image have removed."""
    from imagecorruptions import corruptions

    np.float_ = np.float64  # type: ignore[attr-defined]
    gaussian = corruptions.gaussian

    def compatible(*values: Any, multichannel: bool = False, **options: Any) -> Any:
        return gaussian(*values, **options, **({"channel_axis": -1} if multichannel else {}))

    corruptions.gaussian = compatible


def main() -> None:
    """Make the archive and print the number of images per corruption."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="folder with one folder of images per class")
    parser.add_argument("target", type=Path, help="folder of the archive")
    parser.add_argument("--corruptions", required=True, help="comma-separated names")
    options = parser.parse_args()
    restore_removed_names()
    for name in options.corruptions.split(","):
        print(f"{name}: {corrupt_folder(options.source, options.target, name)} images written", flush=True)


if __name__ == "__main__":
    main()
