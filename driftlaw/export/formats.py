"""File formats for exported models, and how each is written and run: torch.export, ONNX, safetensors."""

import importlib
import json
import logging
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from driftlaw.errors import UsageError
from driftlaw.models import build_model, load_model, save_model
from driftlaw.models.normalize import INPUT_BUFFERS

Metadata = Mapping[str, Any]

METADATA_FILE = "driftlaw.json"
"""Name of the extra file with the metadata in a torch.export program. ONNX files have a property 'driftlaw'."""

TRACED_IMAGES = 2
"""Batch size for tracing. With one image, torch.export would treat the batch size as a constant."""

MAX_INTERPRETED = 8
"""Number of images to compare if onnxruntime is not installed; ONNX's reference evaluator is slow."""


@dataclass(frozen=True)
class Format:
    """A file format for exported models.

    Attributes:
        title: name of the format.
        write: writes a model and its metadata to a path; the images are an example of its input.
        run: returns the logits that the file at a path computes, possibly for the first few images only.
        problem: returns why a model cannot be written and what to do, or None.
        folds: whether BatchNorm layers are folded before the model is written.
    """

    title: str
    write: Callable[[nn.Module, Tensor, Path, Metadata], None]
    run: Callable[[Path, Tensor], Tensor]
    problem: Callable[[nn.Module], str | None] = lambda model: None
    folds: bool = True


def _write_program(model: nn.Module, images: Tensor, path: Path, metadata: Metadata) -> None:
    files = {METADATA_FILE: json.dumps(dict(metadata), sort_keys=True)}
    torch.export.save(_trace(model, images), path, extra_files=files)


def _write_onnx(model: nn.Module, images: Tensor, path: Path, metadata: Metadata) -> None:
    onnx = importlib.import_module("onnx")
    program = _trace(model, images)
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)  # its messages and warnings are for torch's own developers
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            converted = torch.onnx.export(
                program, input_names=["images"], output_names=["logits"], dynamo=True, verbose=False
            )
    finally:
        logger.setLevel(level)
    assert converted is not None  # torch returns None only without dynamo
    proto = converted.model_proto  # some versions of torch create it at every access
    onnx.helper.set_model_props(proto, {"driftlaw": json.dumps(dict(metadata), sort_keys=True)})
    onnx.save(proto, str(path))


def _run_onnx(path: Path, images: Tensor) -> Tensor:
    if _can_import("onnxruntime"):
        runtime = importlib.import_module("onnxruntime")
        session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    else:
        session = importlib.import_module("onnx.reference").ReferenceEvaluator(str(path))
        images = images[:MAX_INTERPRETED]
    (logits,) = session.run(None, {"images": images.cpu().numpy()})
    return torch.from_numpy(logits)


def _onnx_problem(model: nn.Module) -> str | None:
    missing = " and ".join(name for name in ("onnx", "onnxscript") if not _can_import(name))
    fix = "Run `pip install driftlaw[export]`, or use a .pt2 file."
    return f"Writing an .onnx file needs {missing}, which cannot be imported. {fix}" if missing else None


def _safetensors_problem(model: nn.Module) -> str | None:
    """Check that the model can be built by its name, which is all that the file stores beside the weights."""
    name = getattr(model, "info", {}).get("name", type(model).__name__)
    if any(hasattr(model, buffer) for buffer in INPUT_BUFFERS):
        return "A .safetensors file cannot store the normalisation of mean= and std=. Use .pt2 or .onnx."
    try:
        with torch.device("meta"):
            build_model(name, num_classes=1)
    except UsageError:
        return f"A .safetensors file needs a model of `driftlaw list models`, but this is {name}. Use .pt2 or .onnx."
    return None


FORMATS = {
    ".pt2": Format(
        "torch.export program", _write_program, lambda path, images: torch.export.load(path).module()(images)
    ),
    ".onnx": Format("ONNX", _write_onnx, _run_onnx, _onnx_problem),
    # Not folded, so that driftlaw.load_model finds the parameters under their names and the model can adapt again.
    ".safetensors": Format(
        "safetensors",
        lambda model, images, path, metadata: save_model(model, path, metadata={"exported": dict(metadata)}),
        lambda path, images: load_model(path).to(images.device, images.dtype)(images),
        _safetensors_problem,
        folds=False,
    ),
}
"""File formats by file suffix: for torch without driftlaw, for other runtimes, and for ``driftlaw.load_model``."""


def find_format(path: Path) -> Format:
    """Return the format for a file name.

    Raises:
        UsageError: the suffix is not one of ``FORMATS``.
    """
    if path.suffix not in FORMATS:
        valid = ", ".join(f"{suffix} ({file_format.title})" for suffix, file_format in FORMATS.items())
        raise UsageError(f"Cannot export to '{path}'. The file name must end in one of {valid}.")
    return FORMATS[path.suffix]


class _Wrapper(nn.Module):
    """Calls the model as a child: torch.export ignores hooks of the outermost module."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.eval()

    def forward(self, images: Tensor) -> Any:
        return self.model(images)


def _trace(model: nn.Module, images: Tensor) -> torch.export.ExportedProgram:
    example = images[:1].expand(TRACED_IMAGES, -1, -1, -1).clone(memory_format=torch.contiguous_format)
    batch = torch.export.Dim("batch", min=1)
    return torch.export.export(_Wrapper(model), (example,), dynamic_shapes=({0: batch},), strict=False)


def _can_import(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True
