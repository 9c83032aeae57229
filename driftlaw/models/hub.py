"""Networks of torchvision, timm and transformers behind our normalisation; nothing else imports these libraries."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from driftlaw.errors import DataError, UsageError, suggest
from driftlaw.models.normalize import Normalize, make_normalise


class FromLibrary(nn.Module):
    """A library's network behind a normalisation layer: images in [0, 1] in, logits out.

    Args:
        network: takes normalised images; returns logits or something that has ``.logits``.
        normalize: the network's own normalisation.
    """

    def __init__(self, network: nn.Module, normalize: Normalize) -> None:
        super().__init__()
        self.normalize = normalize
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        """Map images (n, 3, h, w) in [0, 1] to logits (n, classes)."""
        answer = self.network(self.normalize(images))
        return getattr(answer, "logits", answer)


def is_of_a_library(name: str | os.PathLike[str]) -> bool:
    """Tell whether a name is ``torchvision:…``, ``timm:…`` or ``hf:…``.

    >>> is_of_a_library("timm:resnet18"), is_of_a_library("resnet18.pt")
    (True, False)
    """
    return str(name).partition(":")[0] in _LOADERS and ":" in str(name)


def load_from_library(name: str) -> nn.Module:
    """Return the trained network that a name such as ``timm:resnet18`` speaks of.

    Raises:
        UsageError: the library cannot be imported, or has no such network.
        DataError: its weights cannot be had.
    """
    library, _, rest = name.partition(":")
    if not rest:
        raise UsageError(f"«{name}» names no network: expected {library}:NAME")
    network, numbers, classes, size = _LOADERS[library](rest)
    model = FromLibrary(network, make_normalise(numbers))
    model.info = {
        "name": name,
        "num_classes": classes,
        "normalise": model.normalize.as_lists(),
        "input_size": size,
        "weights": name,
    }
    return model


Loaded = tuple[nn.Module, dict[str, Any], int, int | None]
"""A network, its normalisation, its classes and the side of the images it was trained on, if that is known."""

PAPER_WEIGHTS = "IMAGENET1K_V1"
"""Of torchvision's weights those that the papers use; its own default is often a later, stronger set."""


def _from_torchvision(name: str) -> Loaded:
    models = _import("torchvision.models")
    name, _, chosen = name.partition("@")
    known = models.list_models()
    if name not in known:
        raise UsageError(f"torchvision has no network «{name}»: {suggest(name, known)}It has {len(known)} others")
    sets = {weights.name: weights for weights in models.get_model_weights(name)}
    chosen = chosen or (PAPER_WEIGHTS if PAPER_WEIGHTS in sets else next(iter(sets), ""))
    if chosen not in sets:
        raise UsageError(f"torchvision has no weights «{chosen}» for {name}: expected {', '.join(sets) or 'none'}")
    weights = sets[chosen]
    network = _fetch(f"torchvision:{name}@{chosen}", lambda: models.get_model(name, weights=weights))
    transform = weights.transforms()
    size = transform.crop_size[0] if getattr(transform, "crop_size", None) else None
    return network, {"mean": list(transform.mean), "std": list(transform.std)}, len(weights.meta["categories"]), size


def _from_timm(name: str) -> Loaded:
    timm = _import("timm")
    if not (name.startswith("hf-hub:") or timm.is_model(name)):
        raise UsageError(f"timm has no network «{name}»: {suggest(name, timm.list_models())}See timm.list_models()")
    network = _fetch(f"timm:{name}", lambda: timm.create_model(name, pretrained=True))
    settings = network.pretrained_cfg
    numbers = {"mean": list(settings["mean"]), "std": list(settings["std"])}
    return network, numbers, network.num_classes, settings["input_size"][-1]


def _from_hf(name: str) -> Loaded:
    transformers = _import("transformers")
    network = _fetch(f"hf:{name}", lambda: transformers.AutoModelForImageClassification.from_pretrained(name))
    images = _fetch(f"hf:{name}", lambda: transformers.AutoImageProcessor.from_pretrained(name))
    size = getattr(network.config, "image_size", None)
    return network, _hf_numbers(images), network.config.num_labels, size if isinstance(size, int) else None


def _hf_numbers(images: Any) -> dict[str, Any]:
    """Return what an image processor does to bytes as what is to be done to images in [0, 1]."""
    scale = 255.0 * images.rescale_factor if getattr(images, "do_rescale", True) else 255.0
    if abs(scale - 1.0) < 1e-6:
        scale = 1.0
    numbers: dict[str, Any] = {"scale": scale}
    if getattr(images, "do_normalize", True):
        numbers |= {"mean": list(images.image_mean), "std": list(images.image_std)}
    if getattr(images, "do_flip_channel_order", False):
        numbers["order"] = "bgr"
    return numbers


_LOADERS: dict[str, Callable[[str], Loaded]] = {
    "torchvision": _from_torchvision,
    "timm": _from_timm,
    "hf": _from_hf,
}

_EXTRAS = {"torchvision": "vision", "timm": "vision", "transformers": "hf"}


def _import(module: str) -> Any:
    """Import a library that is not among our dependencies, or say which build of it to install."""
    library = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    # A torchvision built for CUDA raises RuntimeError beside a CPU-only torch, and takes timm down with it.
    except (ImportError, RuntimeError, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(
            f"{library} cannot be imported ({type(error).__name__}: {reason}): {_remedy(library, error)}"
        ) from error


def _remedy(library: str, error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError):
        built = "" if library == "transformers" else ", torchvision in the build that belongs to your torch"
        return f"install what is missing with `pip install driftlaw[{_EXTRAS[library]}]`{built}"
    return (
        "the installed torchvision was not built for the installed torch. Install both from the same index: for a "
        "CPU-only torch the «+cpu» build of torchvision, for a CUDA one the build of the same CUDA version"
    )


def _fetch(name: str, action: Callable[[], Any]) -> Any:
    """Run what may download weights; say what could not be had."""
    try:
        return action()
    except (OSError, RuntimeError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise DataError(
            f"the weights of «{name}» could not be had ({type(error).__name__}: {reason}): check the name, and that "
            "this machine reaches the library's hub or holds them in its cache"
        ) from error
