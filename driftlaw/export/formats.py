"""The files a network can be written to, and how each is read back: torch.export, ONNX, safetensors."""

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

Facts = Mapping[str, Any]

METADATA = "driftlaw.json"
"""The name under which a torch.export program holds its facts; an ONNX file has them as the property «driftlaw»."""

EXAMPLES = 2
"""Images a network is traced with: a single one would be taken for the only number it will ever see."""

MOST_INTERPRETED = 8
"""Images that are compared where only ONNX's own evaluator is there, which is written to be read, not to be fast."""


@dataclass(frozen=True)
class Networks:
    """The two shapes of what is exported.

    Attributes:
        plain: the network with fixed statistics, its layers as they were.
        folded: the same answers with BatchNorm folded.
    """

    plain: nn.Module
    folded: nn.Module


class Format(ABC):
    """How a network becomes a file, and how the file answers."""

    title: str
    folds: bool = True

    def obstacle(self, networks: Networks) -> str | None:
        """Return why this network cannot be written so, and what to do; None where it can."""
        return None

    @abstractmethod
    def write(self, networks: Networks, images: Tensor, path: Path, facts: Facts) -> None:
        """Write the network and where it comes from."""

    @abstractmethod
    def answer(self, path: Path, images: Tensor) -> Tensor:
        """Return what the file answers: logits of the images, or of as many of the first as are soon computed."""

    @abstractmethod
    def facts(self, path: Path) -> dict[str, Any]:
        """Return where the network in a file comes from."""


class Program(Format):
    """torch.export: runs wherever torch does, without a line of Python of ours."""

    title = "torch.export program"

    def write(self, networks: Networks, images: Tensor, path: Path, facts: Facts) -> None:
        """Trace the folded network for any number of images."""
        program = _program(networks.folded, images)
        torch.export.save(program, path, extra_files={METADATA: json.dumps(dict(facts), sort_keys=True)})

    def answer(self, path: Path, images: Tensor) -> Tensor:
        """Run the program."""
        with torch.no_grad():
            return torch.export.load(path).module()(images)

    def facts(self, path: Path) -> dict[str, Any]:
        """Read the extra file."""
        found = {METADATA: ""}
        torch.export.load(path, extra_files=found)
        return json.loads(found[METADATA])


class Onnx(Format):
    """ONNX: for runtimes that are not torch."""

    title = "ONNX"

    def obstacle(self, networks: Networks) -> str | None:
        """Ask for the two packages that torch writes ONNX with."""
        missing = " and ".join(name for name in ("onnx", "onnxscript") if not _can_import(name))
        remedy = "`pip install driftlaw[export]`, or take .pt2"
        return f"an .onnx file needs {missing}, not installed here: {remedy}" if missing else None

    def write(self, networks: Networks, images: Tensor, path: Path, facts: Facts) -> None:
        """Translate the program of the folded network into one file, weights included."""
        onnx = importlib.import_module("onnx")
        program = _program(networks.folded, images)
        with _quiet_translator():
            written = torch.onnx.export(
                program, input_names=["images"], output_names=["logits"], dynamo=True, verbose=False
            )
        model = written.model_proto
        onnx.helper.set_model_props(model, {"driftlaw": json.dumps(dict(facts), sort_keys=True)})
        onnx.save(model, str(path))

    def answer(self, path: Path, images: Tensor) -> Tensor:
        """Run the file in onnxruntime, or in ONNX's own evaluator where that is not installed."""
        if _can_import("onnxruntime"):
            runtime = importlib.import_module("onnxruntime")
            session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        else:
            session = importlib.import_module("onnx.reference").ReferenceEvaluator(str(path))
            images = images[:MOST_INTERPRETED]
        (logits,) = session.run(None, {"images": images.cpu().numpy()})
        return torch.from_numpy(logits)

    def facts(self, path: Path) -> dict[str, Any]:
        """Read the property."""
        model = importlib.import_module("onnx").load(str(path), load_external_data=False)
        return json.loads({entry.key: entry.value for entry in model.metadata_props}["driftlaw"])


class Weights(Format):
    """safetensors: the network as ``driftlaw.load_model`` reads it, to be adapted again or run in Python."""

    title = "safetensors"
    folds = False

    def obstacle(self, networks: Networks) -> str | None:
        """Refuse what is not one of our networks, of which the file has to say the name."""
        name = getattr(networks.plain, "info", {}).get("name", type(networks.plain).__name__)
        if is_of_ours(name):
            return None
        return f"a .safetensors file holds a network of `driftlaw list models`, and this is {name}: take .pt2 or .onnx"

    def write(self, networks: Networks, images: Tensor, path: Path, facts: Facts) -> None:
        """Write the weights with the statistics filled in; nothing is folded, so that names stay what they are."""
        save_model(networks.plain, path, facts={"exported": dict(facts)})

    def answer(self, path: Path, images: Tensor) -> Tensor:
        """Load the network and ask it."""
        with torch.no_grad():
            return load_model(path).to(images.device, images.dtype)(images)

    def facts(self, path: Path) -> dict[str, Any]:
        """Read the metadata."""
        return load_model(path).info["exported"]


def is_of_ours(name: str) -> bool:
    """Tell whether ``build_model`` makes a network of this name."""
    try:
        with torch.device("meta"):
            build_model(name, num_classes=1)
    except UsageError:
        return False
    return True


FORMATS: dict[str, Format] = {".pt2": Program(), ".onnx": Onnx(), ".safetensors": Weights()}
"""The formats, by the suffix of a file."""


def find_format(path: Path) -> Format:
    """Return the format that a file's suffix asks for."""
    if path.suffix not in FORMATS:
        known = ", ".join(f"{suffix} ({kind.title})" for suffix, kind in FORMATS.items())
        raise UsageError(f"{path} ends in «{path.suffix}»: expected one of {known}")
    return FORMATS[path.suffix]


def _program(network: nn.Module, images: Tensor) -> torch.export.ExportedProgram:
    example = images[:1].expand(EXAMPLES, -1, -1, -1).clone(memory_format=torch.contiguous_format)
    count = torch.export.Dim("batch", min=1)
    with torch.no_grad():
        return torch.export.export(_Whole(network), (example,), dynamic_shapes=({0: count},), strict=False)


class _Whole(nn.Module):
    """Calls a network with all that hangs on it: torch.export leaves the hooks of the outermost module out."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        return self.network(images)


@contextmanager
def _quiet_translator() -> Iterator[None]:
    """Inside, what torch's translator says to its own developers is not passed on to users: it is no news to them."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)


def _can_import(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True
