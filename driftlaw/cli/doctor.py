"""``driftlaw doctor``: what this machine has and can do, and what is missing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any

import typer

EXTRAS = {
    "torchvision": "driftlaw[vision], built for the same torch",
    "timm": "driftlaw[vision]",
    "transformers": "driftlaw[hf]",
}


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False) -> None:
    """Say what this machine has and can do: versions, devices, precision, data, weights, optional packages.

    Example: driftlaw doctor
    """
    findings = list(_findings())
    if as_json:
        print(json.dumps(findings))
        return
    width = max(len(finding["name"]) for finding in findings)
    for finding in findings:
        print(f"{finding['name']:<{width}}  {finding['found']}")


def _findings() -> Iterator[dict[str, Any]]:
    import torch

    from driftlaw import paths as places
    from driftlaw.execution.compile import has_cpp_compiler
    from driftlaw.hardware import environment, pick_device, supports_bf16
    from driftlaw.models import list_weights

    device = pick_device("auto")
    facts = environment(device)
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    yield _finding("driftlaw", f"{facts['driftlaw']} (commit {facts['commit'] or 'unknown'}); {versions}")
    yield _finding(
        "device", f"{facts['device']['type']}: {facts['device']['name']}, {facts['device']['threads']} threads"
    )
    for kind in ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]:
        runs = "runs" if supports_bf16(torch.device(kind)) else "does not run; float32 is used"
        yield _finding(f"bf16 on {kind}", runs)
    compiler = "there" if has_cpp_compiler() else "none; on a CPU compiled = true runs steps as written"
    yield _finding("C++ compiler", compiler)
    yield _finding("data folder", _folder(places.data_dir()))
    yield _finding("weights", ", ".join(list_weights()) or "none")
    for name, remedy in EXTRAS.items():
        yield _finding(name, _importable(name, remedy))


def _finding(name: str, found: str) -> dict[str, Any]:
    return {"name": name, "found": found}


def _folder(path: Any) -> str:
    import shutil

    if not path.exists():
        return f"{path}, not there yet; set DRIFTLAW_DATA or --data-dir for another"
    return f"{path}, {shutil.disk_usage(path).free / 2**30:.0f} GiB free"


def _importable(name: str, remedy: str) -> str:
    import importlib

    try:
        module = importlib.import_module(name)
    except (ImportError, RuntimeError) as error:  # torchvision raises RuntimeError beside a torch it was not built for
        first_line = str(error).partition("\n")[0]
        return f"not usable ({first_line}); wanted only for networks of its kind: {remedy}"
    return str(getattr(module, "__version__", "there"))
