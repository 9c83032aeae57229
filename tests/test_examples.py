"""The scripts in examples/ are short and run, if the packages they need can be imported."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
NEEDS = {
    "plain_pytorch.py": ["torch"],
    "own_image_folder.py": ["torch"],
    "video_frames.py": ["torch"],
    "lightning_module.py": ["lightning.pytorch", "pytorch_lightning"],
    "timm_resnet18.py": ["timm"],
    "hf_image_classifier.py": ["transformers"],
}
"""Packages of which at least one must be importable, by example."""

PRINTS = {
    "plain_pytorch.py": "LAW: ",
    "own_image_folder.py": "law: 200 images of 10 classes, ",
    "video_frames.py": "300 frames, 2 updates, ",
    "lightning_module.py": "LAW: ",
    "timm_resnet18.py": "3 updates, logits (16, 10)",
    "hf_image_classifier.py": "4 updates, logits (16, 10)",
}


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own, so that its imports do not change this one's."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(EXAMPLES.parent)}
    return subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True)


def can_import(package: str, folder: Path) -> bool:
    """Return True if a package can be imported; a mismatched torchvision raises RuntimeError, not ImportError."""
    if package in sys.modules:
        return True
    is_installed = importlib.util.find_spec(package.partition(".")[0]) is not None
    return is_installed and run("-c", f"import {package}", folder=folder).returncode == 0


def test_every_example_is_tested_and_short():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(NEEDS) == set(PRINTS)
    assert all(len(path.read_text(encoding="utf-8").splitlines()) < 40 for path in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("name", NEEDS)
def test_example_runs(name, tmp_path):
    if not any(can_import(package, tmp_path) for package in NEEDS[name]):
        pytest.skip(f"none of {', '.join(NEEDS[name])} can be imported")
    done = run(str(EXAMPLES / name), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert PRINTS[name] in done.stdout


def test_plain_example_lowers_the_error(tmp_path):
    done = run(str(EXAMPLES / "plain_pytorch.py"), folder=tmp_path)
    without, adapted = (float(line.split()[-5]) for line in done.stdout.splitlines())
    assert adapted < without - 5


def test_video_example_reads_a_folder_of_frames(tmp_path):
    from PIL import Image

    for number in range(20):
        Image.new("RGB", (48, 40), (10 * number, 90, 120)).save(tmp_path / f"{number:03}.png")
    done = run(str(EXAMPLES / "video_frames.py"), str(tmp_path), folder=tmp_path)
    assert done.stdout.startswith("20 frames"), done.stderr
