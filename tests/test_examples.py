"""The examples are short and run, those whose dependency imports; a broken torchvision raises RuntimeError."""

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
    "lightning_module.py": ["lightning.pytorch", "pytorch_lightning"],
    "timm_resnet18.py": ["timm"],
    "hf_image_classifier.py": ["transformers"],
}
"""An example, and the packages of which one must be there."""

SAYS = {
    "plain_pytorch.py": "adapting: ",
    "own_image_folder.py": "200 pictures of 10 classes: ",
    "lightning_module.py": "adapting: ",
    "timm_resnet18.py": "3 steps, logits (16, 10)",
    "hf_image_classifier.py": "4 steps, logits (16, 10)",
}


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder of its own; other processes' imports must not change this one's."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(EXAMPLES.parent)}
    return subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True)


def imports(package: str, folder: Path) -> bool:
    """Tell whether a package imports, whatever it raises where it does not."""
    if package in sys.modules:
        return True
    is_there = importlib.util.find_spec(package.partition(".")[0]) is not None
    return is_there and run("-c", f"import {package}", folder=folder).returncode == 0


def test_every_example_is_known_here_and_short():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(NEEDS) == set(SAYS)
    assert all(len(path.read_text(encoding="utf-8").splitlines()) < 40 for path in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("name", NEEDS)
def test_an_example_runs_where_its_dependency_imports(name, tmp_path):
    if not any(imports(package, tmp_path) for package in NEEDS[name]):
        pytest.skip(f"none of {', '.join(NEEDS[name])} imports here")
    done = run(str(EXAMPLES / name), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert SAYS[name] in done.stdout
    if name == "plain_pytorch.py":
        as_trained, adapting = (float(line.split()[-5]) for line in done.stdout.splitlines())
        assert adapting < as_trained - 5
