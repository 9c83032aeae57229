"""The scripts in examples/ are short and run, if the packages they need can be imported."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
EXPECTED = {
    "plain_pytorch.py": ("torch", "LAW: "),
    "group_norm.py": ("torch", "2 updates, logits (64, 10)"),
    "normalized_loader.py": ("torch", "4 updates, "),
    "own_image_folder.py": ("torch", "law: 200 images of 10 classes, "),
    "own_method.py": ("torch", "own-entropy: "),
    "own_network.py": ("torch", "own_network.py:make"),
    "video_frames.py": ("torch", "300 frames, 2 updates, "),
    "send_folder.py": ("fastapi", "8 images, 0 updates: Counter"),
    "tensorboard_logging.py": ("tensorboard", "LAW: 8 steps, 400 images"),
    "lightning_module.py": ("lightning", "LAW: "),
    "timm_cnn.py": ("timm", "3 updates, logits (32, 10)"),
    "timm_vit.py": ("timm", "3 updates, logits (32, 10)"),
    "hugging_face.py": ("transformers", "ConvNextForImageClassification: ImageClassifierOutputWithNoAttention, logits"),
}
"""By example: the package it needs, and a part of what it prints."""


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
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(EXPECTED)
    assert all(len(path.read_text(encoding="utf-8").splitlines()) < 45 for path in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("name", EXPECTED)
def test_example_runs(name, tmp_path):
    package, expected = EXPECTED[name]
    if not can_import(package, tmp_path):
        pytest.skip(f"{package} cannot be imported")
    done = run_with_server(tmp_path) if name == "send_folder.py" else run(str(EXAMPLES / name), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert expected in done.stdout


def run_with_server(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the example that needs a server, with a folder of its own."""
    from PIL import Image

    from tests.serving.test_process import start

    (folder / "images").mkdir()
    for number in range(8):
        Image.new("RGB", (40, 32), (30 * number, 90, 9)).save(folder / "images" / f"{number}.png")
    process, client, _ = start(folder)
    try:
        return run(str(EXAMPLES / "send_folder.py"), str(folder / "images"), client.url, folder=folder)
    finally:
        process.kill()
        process.communicate()


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
