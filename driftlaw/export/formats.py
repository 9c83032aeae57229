"""File formats for exported models, and how each is written and run: torch.export, ONNX, safetensors."""

from __future__ import annotations

import importlib
import json
import logging
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from driftlaw.errors import UsageError
from driftlaw.models import build_model, load_model, save_model

Metadata = Mapping[str, Any]

METADATA_FILE = "driftlaw.json"
"""Name of the extra file with the metadata in a torch.export program. ONNX files have a property 'driftlaw'."""

TRACED_IMAGES = 2
"""Batch size for tracing. With one image, torch.export would treat the batch size as a constant."""

MAX_INTERPRETED = 8
"""Number of images to compare if onnxruntime is not installed; ONNX's reference evaluator is slow."""


@dataclass(frozen=True)
class ExportModels:
    """The two versions of an exported model.

    Attributes:
        plain: the model with fixed statistics and unchanged layers.
        folded: an equivalent model with folded BatchNorm layers.
    """

    plain: nn.Module
    folded: nn.Module


class Format(ABC):
    """A file format: writes a model, runs the written file, and reads its metadata.

    Attributes:
        title: name of the format.
        folds: whether files contain the folded model.
    """

    title: str
    folds: bool = True

    def problem(self, models: ExportModels) -> str | None:
        """Return why this model cannot be written and what to do, or None."""
        return None

    @abstractmethod
    def write(self, models: ExportModels, images: Tensor, path: Path, metadata: Metadata) -> None:
        """Write the model and its metadata."""

    @abstractmethod
    def run(self, path: Path, images: Tensor) -> Tensor:
        """Return the logits that a file computes, possibly for the first few images only."""

    @abstractmethod
    def read_metadata(self, path: Path) -> dict[str, Any]:
        """Return the metadata of a file."""


class TorchExport(Format):
    """torch.export: runs wherever torch is installed, without driftlaw."""

    title = "torch.export program"

    def write(self, models: ExportModels, images: Tensor, path: Path, metadata: Metadata) -> None:
        """Trace the folded model for any batch size."""
        program = _trace(models.folded, images)
        torch.export.save(program, path, extra_files={METADATA_FILE: json.dumps(dict(metadata), sort_keys=True)})

    def run(self, path: Path, images: Tensor) -> Tensor:
        """Run the program."""
        with torch.no_grad():
            logits: Tensor = torch.export.load(path).module()(images)
        return logits

    def read_metadata(self, path: Path) -> dict[str, Any]:
        """Read the extra file."""
        files = {METADATA_FILE: ""}
        torch.export.load(path, extra_files=files)
        return dict(json.loads(files[METADATA_FILE]))


class Onnx(Format):
    """ONNX: for other runtimes than torch."""

    title = "ONNX"

    def problem(self, models: ExportModels) -> str | None:
        """Check that the packages with which torch writes ONNX are installed."""
        missing = " and ".join(name for name in ("onnx", "onnxscript") if not _can_import(name))
        fix = "Run `pip install driftlaw[export]`, or use a .pt2 file."
        return f"Writing an .onnx file needs {missing}, which cannot be imported. {fix}" if missing else None

    def write(self, models: ExportModels, images: Tensor, path: Path, metadata: Metadata) -> None:
        """Convert the traced folded model into one file that includes the weights."""
        onnx = importlib.import_module("onnx")
        program = _trace(models.folded, images)
        with _quiet_onnx_export():
            converted = torch.onnx.export(
                program, input_names=["images"], output_names=["logits"], dynamo=True, verbose=False
            )
        assert converted is not None  # torch returns None only without dynamo
        model = converted.model_proto
        onnx.helper.set_model_props(model, {"driftlaw": json.dumps(dict(metadata), sort_keys=True)})
        onnx.save(model, str(path))

    def run(self, path: Path, images: Tensor) -> Tensor:
        """Run the file with onnxruntime, or with ONNX's reference evaluator if that is not installed."""
        if _can_import("onnxruntime"):
            runtime = importlib.import_module("onnxruntime")
            session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        else:
            session = importlib.import_module("onnx.reference").ReferenceEvaluator(str(path))
            images = images[:MAX_INTERPRETED]
        (logits,) = session.run(None, {"images": images.cpu().numpy()})
        return torch.from_numpy(logits)

    def read_metadata(self, path: Path) -> dict[str, Any]:
        """Read the property 'driftlaw'."""
        model = importlib.import_module("onnx").load(str(path), load_external_data=False)
        return dict(json.loads({entry.key: entry.value for entry in model.metadata_props}["driftlaw"]))


class Safetensors(Format):
    """safetensors: weights for ``driftlaw.load_model``, to adapt again or to run in Python."""

    title = "safetensors"
    folds = False

    def problem(self, models: ExportModels) -> str | None:
        """Check that the model can be built by its name, which is all that the file stores beside the weights."""
        name = getattr(models.plain, "info", {}).get("name", type(models.plain).__name__)
        if can_build(name):
            return None
        return f"A .safetensors file needs a model of `driftlaw list models`, but this is {name}. Use .pt2 or .onnx."

    def write(self, models: ExportModels, images: Tensor, path: Path, metadata: Metadata) -> None:
        """Write the weights with the fixed statistics. Nothing is folded, so that parameter names stay the same."""
        save_model(models.plain, path, metadata={"exported": dict(metadata)})

    def run(self, path: Path, images: Tensor) -> Tensor:
        """Load the model and run it."""
        with torch.no_grad():
            logits: Tensor = load_model(path).to(images.device, images.dtype)(images)
        return logits

    def read_metadata(self, path: Path) -> dict[str, Any]:
        """Read the metadata beside the weights."""
        return dict(getattr(load_model(path), "info", {})["exported"])


def can_build(name: str) -> bool:
    """Return True if ``build_model`` knows a model of this name."""
    try:
        with torch.device("meta"):
            build_model(name, num_classes=1)
    except UsageError:
        return False
    return True


FORMATS: dict[str, Format] = {".pt2": TorchExport(), ".onnx": Onnx(), ".safetensors": Safetensors()}
"""File formats by file suffix."""


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
    with torch.no_grad():
        return torch.export.export(_Wrapper(model), (example,), dynamic_shapes=({0: batch},), strict=False)


@contextmanager
def _quiet_onnx_export() -> Iterator[None]:
    """Context manager that silences messages of torch.onnx for its own developers."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _can_import(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True
