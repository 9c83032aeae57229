"""The scripts in examples/ are short and run, if the packages they need can be imported."""

from __future__ import annotations

import importlib.util
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

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
    "torchvision_segmentation.py": ("torchvision", "fcn_resnet50: 5 updates, OrderedDict with logits (2, 11, 64, 96)"),
    "segformer.py": ("transformers", "5 updates, SemanticSegmenterOutput with logits (2, 11, 16, 24)"),
    "smp_unet.py": ("segmentation_models_pytorch", "5 updates, logits (2, 11, 64, 96)"),
}
"""By example: the package it needs, and a part of what it prints."""
CORE = {name for name, (package, _) in EXPECTED.items() if package == "torch"}


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


@pytest.fixture
def run_here(tmp_path, monkeypatch, capfd):
    """A function that runs an example in this process, which need not import torch again, and returns its output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES.parent))  # for an example that starts a process
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    def call(name: str, *arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", [str(EXAMPLES / name), *arguments])
        with torch.random.fork_rng():
            runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capfd.readouterr().out

    return call


def test_every_example_is_tested_and_short():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(EXPECTED)
    assert all(len(path.read_text(encoding="utf-8").splitlines()) < 45 for path in EXAMPLES.glob("*.py"))


@pytest.mark.small_batches
@pytest.mark.parametrize("name", sorted(CORE))
def test_example_runs(name, run_here):
    output = run_here(name)
    assert EXPECTED[name][1] in output
    if name == "plain_pytorch.py":
        without, adapted = (float(line.split()[-5]) for line in output.splitlines())
        assert adapted < without - 5


@pytest.mark.parametrize("name", sorted(set(EXPECTED) - CORE - {"send_folder.py"}))
def test_example_with_an_optional_package_runs(name, tmp_path):
    package, expected = EXPECTED[name]
    if not can_import(package, tmp_path):
        pytest.skip(f"{package} cannot be imported")
    done = run(str(EXAMPLES / name), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert expected in done.stdout


@pytest.mark.small_batches
def test_example_that_sends_a_folder_runs(run_here, tmp_path):
    pytest.importorskip(EXPECTED["send_folder.py"][0])
    from PIL import Image

    from tests.serving.test_process import start

    (tmp_path / "images").mkdir()
    for number in range(8):
        Image.new("RGB", (40, 32), (30 * number, 90, 9)).save(tmp_path / "images" / f"{number}.png")
    process, client, _ = start(tmp_path)
    try:
        output = run_here("send_folder.py", str(tmp_path / "images"), client.url)
    finally:
        process.kill()
        process.communicate()
    assert EXPECTED["send_folder.py"][1] in output


@pytest.mark.small_batches
def test_video_example_reads_a_folder_of_frames(run_here, tmp_path):
    from PIL import Image

    for number in range(20):
        Image.new("RGB", (48, 40), (10 * number, 90, 120)).save(tmp_path / f"{number:03}.png")
    assert run_here("video_frames.py", str(tmp_path)).startswith("20 frames")
