"""``driftlaw doctor``: what this machine supports, and which optional packages are missing."""

import importlib
import json
import shutil
from collections.abc import Iterator

from driftlaw.cli.console import echo
from driftlaw.cli.options import AsJson

EXTRAS = {
    "torchvision": "driftlaw[vision], built for the installed torch",
    "timm": "driftlaw[vision]",
    "transformers": "driftlaw[hf]",
}


def doctor(as_json: AsJson = False) -> None:
    """Report versions, devices, precision, data directory, weights and optional packages.

    For example: driftlaw doctor
    """
    findings = dict(_findings())
    if as_json:
        print(json.dumps([{"name": name, "found": text} for name, text in findings.items()]))
        return
    width = max(map(len, findings))
    for name, text in findings.items():
        echo(f"{name:<{width}}  {text}")


def _findings() -> Iterator[tuple[str, str]]:
    import torch

    from driftlaw.execution.compile import has_cpp_compiler
    from driftlaw.hardware import environment, pick_device, supports_bf16
    from driftlaw.models import list_weights
    from driftlaw.paths import data_dir

    info = environment(pick_device("auto"))
    versions = ", ".join(f"{name} {version}" for name, version in info["versions"].items())
    yield "driftlaw", f"{info['driftlaw']} (commit {info['commit'] or 'unknown'}); {versions}"
    yield "device", "{type}: {name}, {threads} threads".format(**info["device"])
    for kind in ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]:
        supported = supports_bf16(torch.device(kind))
        yield f"bf16 on {kind}", "supported" if supported else "not supported; float32 is used"
    yield (
        "C++ compiler",
        "installed" if has_cpp_compiler() else "not found; on a CPU, compiled=true has no effect without one",
    )
    folder = data_dir()
    state = "does not exist yet; set $DRIFTLAW_DATA or --data-dir to use another"
    if folder.exists():
        state = f"{shutil.disk_usage(folder).free / 2**30:.0f} GiB free"
    yield "data folder", f"{folder} ({state})"
    yield "weights", ", ".join(list_weights()) or "none"
    for name, extra in EXTRAS.items():
        yield name, _describe_package(name, extra)


def _describe_package(name: str, extra: str) -> str:
    try:
        module = importlib.import_module(name)
    except (ImportError, RuntimeError) as error:  # torchvision raises RuntimeError if built for another torch
        reason = str(error).partition("\n")[0]
        return f"cannot be imported ({reason}); needed only for its models, install {extra}"
    return str(getattr(module, "__version__", "installed"))
