"""Compares driftlaw's corruptions with an archive that ``tools.imagecorruptions_archive`` made of the same images.

    python -m tools.compare_corruptions imagenet/val imagecorruptions-c --out images.json

Prints, per corruption, the largest and the mean absolute difference of pixels. For both it prints the mean, the mean
absolute difference from the clean image, and the mean absolute Laplacian. All are in grey levels from 0 to 255. Pixels
of random corruptions differ, so compare their statistics.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from driftlaw.corruptions import corrupt
from driftlaw.datasets import load_dataset, open_archive
from driftlaw.datasets.protocol import Pixels
from tools.imagecorruptions_archive import SEVERITY


def compare(source: Path, archive: Path) -> dict[str, Any]:
    """Return the differences of every corruption in an archive."""
    dataset, theirs = load_dataset(f"folder:{source}"), open_archive(archive)
    indices = np.arange(len(dataset))
    clean = dataset.images(indices)
    result = {}
    for name in theirs.corruptions():
        other = theirs.images(name, SEVERITY, indices)
        own = corrupt(torch.from_numpy(clean).permute(0, 3, 1, 2), name, SEVERITY).permute(0, 2, 3, 1).numpy()
        difference = np.abs(own.astype(int) - other)
        result[name] = {
            "largest_difference": int(difference.max()),
            "mean_difference": round(float(difference.mean()), 3),
            "driftlaw": _statistics(own, clean),
            "imagecorruptions": _statistics(other, clean),
        }
    return result


def _statistics(images: Pixels, clean: Pixels) -> dict[str, float]:
    gray = images.mean(axis=-1)
    center, above, below = gray[:, 1:-1, 1:-1], gray[:, :-2, 1:-1], gray[:, 2:, 1:-1]
    laplacian = 4 * center - above - below - gray[:, 1:-1, :-2] - gray[:, 1:-1, 2:]
    values = {
        "mean": images.mean(),
        "difference_from_clean": np.abs(images - clean.astype(float)).mean(),
        "laplacian": np.abs(laplacian).mean(),
    }
    return {name: round(float(value), 2) for name, value in values.items()}


def main() -> None:
    """Compare and print or write a JSON document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="folder with one folder of clean images per class")
    parser.add_argument("archive", type=Path, help="archive made of these images")
    parser.add_argument("--out", type=Path, help="JSON file; printed if omitted")
    options = parser.parse_args()
    command = shlex.join(["python", "-m", "tools.compare_corruptions", *sys.argv[1:]])
    count = sum(1 for _ in options.source.glob("*/*"))
    document = {"command": command, "images": count, "corruptions": compare(options.source, options.archive)}
    text = json.dumps(document, indent=1) + "\n"
    options.out.write_text(text, encoding="utf-8") if options.out else print(text, end="")


if __name__ == "__main__":
    main()
