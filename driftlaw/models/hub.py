"""Models of torchvision, timm and transformers behind driftlaw's normalisation; no other module imports these."""

import importlib
import os
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from driftlaw.errors import DataError, UsageError, suggest
from driftlaw.models.normalize import Normalize, make_normalize

PAPER_WEIGHTS = "IMAGENET1K_V1"
"""torchvision's weights that the papers use; its default is often a later and stronger set."""

HubResult = tuple[nn.Module, dict[str, Any], int, int | None]
"""A network, its normalisation, its number of classes, and the side of its training images if known."""


class HubModel(nn.Module):
    """A library's network behind a normalisation layer: images in [0, 1] to logits.

    Args:
        network: Maps normalised images to logits, or to an object with an attribute ``logits``.
        normalize: The network's input normalisation.
    """

    def __init__(self, network: nn.Module, normalize: Normalize) -> None:
        super().__init__()
        self.normalize = normalize
        self.network = network
        self.info: dict[str, Any] = {}

    def forward(self, images: Tensor) -> Tensor:
        """Map images (n, 3, h, w) in [0, 1] to logits (n, classes)."""
        output = self.network(self.normalize(images))
        logits: Tensor = getattr(output, "logits", output)
        return logits


def is_hub_name(name: str | os.PathLike[str]) -> bool:
    """Return True for names such as ``torchvision:…``, ``timm:…`` or ``hf:…``.

    >>> is_hub_name("timm:resnet18"), is_hub_name("resnet18.pt")
    (True, False)
    """
    return str(name).partition(":")[0] in _LOADERS and ":" in str(name)


def load_hub_model(name: str) -> HubModel:
    """Return the pretrained model for a name such as ``timm:resnet18``.

    Raises:
        UsageError: The library cannot be imported, or has no such model.
        DataError: The weights cannot be downloaded.
    """
    library, _, model_name = name.partition(":")
    if not model_name:
        raise UsageError(f"'{name}' contains no model name. Expected {library}:NAME.")
    network, numbers, num_classes, input_size = _LOADERS[library](model_name)
    model = HubModel(network, make_normalize(numbers))
    model.info = {
        "name": name,
        "num_classes": num_classes,
        "normalise": model.normalize.as_lists(),
        "input_size": input_size,
        "weights": name,
    }
    return model


def _load_torchvision(name: str) -> HubResult:
    models = _import("torchvision.models")
    name, _, chosen = name.partition("@")
    known = models.list_models()
    if name not in known:
        raise UsageError(f"torchvision has no model '{name}'. {suggest(name, known)}It has {len(known)} others.")
    available = {weights.name: weights for weights in models.get_model_weights(name)}
    chosen = chosen or (PAPER_WEIGHTS if PAPER_WEIGHTS in available else next(iter(available), ""))
    if chosen not in available:
        expected = ", ".join(available) or "none"
        raise UsageError(f"torchvision has no weights '{chosen}' for {name}. Expected one of: {expected}.")
    weights = available[chosen]
    network = _download(f"torchvision:{name}@{chosen}", lambda: models.get_model(name, weights=weights))
    transform = weights.transforms()
    size = transform.crop_size[0] if getattr(transform, "crop_size", None) else None
    return network, {"mean": list(transform.mean), "std": list(transform.std)}, len(weights.meta["categories"]), size


def _load_timm(name: str) -> HubResult:
    timm = _import("timm")
    if not (name.startswith("hf-hub:") or timm.is_model(name)):
        raise UsageError(f"timm has no model '{name}'. {suggest(name, timm.list_models())}See timm.list_models().")
    network = _download(f"timm:{name}", lambda: timm.create_model(name, pretrained=True))
    settings = network.pretrained_cfg
    numbers = {"mean": list(settings["mean"]), "std": list(settings["std"])}
    return network, numbers, network.num_classes, settings["input_size"][-1]


def _load_hf(name: str) -> HubResult:
    transformers = _import("transformers")
    network = _download(f"hf:{name}", lambda: transformers.AutoModelForImageClassification.from_pretrained(name))
    processor = _download(f"hf:{name}", lambda: transformers.AutoImageProcessor.from_pretrained(name))
    size = getattr(network.config, "image_size", None)
    return network, hf_normalization(processor), network.config.num_labels, size if isinstance(size, int) else None


def hf_normalization(processor: Any) -> dict[str, Any]:
    """Convert the settings of a transformers image processor, which expects bytes, to images in [0, 1]."""
    scale = 255.0 * processor.rescale_factor if getattr(processor, "do_rescale", True) else 255.0
    numbers: dict[str, Any] = {"scale": 1.0 if abs(scale - 1.0) < 1e-6 else scale}
    if getattr(processor, "do_normalize", True):
        numbers |= {"mean": list(processor.image_mean), "std": list(processor.image_std)}
    if getattr(processor, "do_flip_channel_order", False):
        numbers["order"] = "bgr"
    return numbers


_LOADERS: dict[str, Callable[[str], HubResult]] = {"torchvision": _load_torchvision, "timm": _load_timm, "hf": _load_hf}


def _import(module: str) -> Any:
    """Import an optional library, or raise an error that names the build to install."""
    library = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    # torchvision built for CUDA raises RuntimeError beside a CPU-only torch, and timm fails with it.
    except (ImportError, RuntimeError, OSError) as error:
        reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        if isinstance(error, ModuleNotFoundError):
            remedy = (
                "Install it with `pip install driftlaw[vision]`, with the torchvision build that matches your torch."
            )
            if library == "transformers":
                remedy = "Install it with `pip install driftlaw[hf]`."
        else:
            remedy = (
                "The installed torchvision was not built for the installed torch. Install both from the same index: "
                "the '+cpu' build for a CPU-only torch, else the build for the same CUDA version."
            )
        raise UsageError(f"{library} cannot be imported ({reason}). {remedy}") from error


def _download(name: str, load: Callable[[], Any]) -> Any:
    """Call a function that may download weights; explain its failure."""
    try:
        return load()
    except (ImportError, OSError, RuntimeError, ValueError) as error:  # transformers imports lazily
        reason = str(error).strip().partition("\n")[0]
        raise DataError(
            f"The weights of '{name}' could not be loaded ({type(error).__name__}: {reason}). Check the name, and that "
            "this machine can reach the library's hub or has the weights in its cache."
        ) from error
