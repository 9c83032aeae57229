"""Networks of torchvision, timm, transformers, smp (imported by no other module) and of users' Python files."""

import importlib
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from driftlaw.errors import DataError, UsageError, suggest
from driftlaw.files import describe_error, import_python_file, sha256_of
from driftlaw.models.normalize import NORMALIZATIONS, Normalization, Normalize, make_normalize
from driftlaw.models.state_dicts import load_tensors, read_tensors, strip_prefix

PAPER_WEIGHTS = "IMAGENET1K_V1"
"""torchvision's weights that the papers use; its default is often a later and stronger set."""

Tensors = Mapping[str, Tensor]
HubResult = tuple[nn.Module, dict[str, Any], int | None, int | None]
"""A network, its normalisation, its number of classes, and the side of its training images, if these are known."""


class HubModel(nn.Module):
    """A network of a library or of a Python file behind a normalisation layer: images in [0, 1] to logits.

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
        """Map images (n, 3, h, w) in [0, 1] to logits (n, classes), or (n, classes, h, w) for segmentation."""
        output = self.network(self.normalize(images))
        if isinstance(output, torch.fx.Proxy):  # while layers are folded; a proxy claims to have every attribute
            return output  # type: ignore[return-value]
        if isinstance(output, Mapping) and "out" in output:  # segmentation networks of torchvision
            output = output["out"]
        logits: Tensor = getattr(output, "logits", output)
        return logits


def is_hub_name(name: str | os.PathLike[str]) -> bool:
    """Return True for names such as ``torchvision:…``, ``timm:…``, ``hf:…``, ``smp:…`` or ``FILE.py:NAME``.

    >>> is_hub_name("timm:resnet18"), is_hub_name("mynet.py:make"), is_hub_name("resnet18.pt")
    (True, True, False)
    """
    text = str(name)
    return (text.partition(":")[0] in _LOADERS and ":" in text) or ".py:" in text or text.endswith(".py")


def load_hub_model(
    name: str, checkpoint: str | os.PathLike[str] | None = None, normalize: Normalization | None = None
) -> HubModel:
    """Return the model for a name such as ``timm:resnet18`` or ``mynet.py:make``.

    Args:
        name: Library and model, or Python file and the function or class that returns the network.
        checkpoint: File with a state dict to load. By default a library's model has its pretrained weights.
        normalize: Input normalisation of the network of a file (by default it expects images in [0, 1]), or of a
            checkpoint (by default the one of the library's pretrained weights).

    Raises:
        UsageError: The library or file cannot be imported, or has no such model.
        DataError: The weights cannot be downloaded, or the checkpoint does not fit.
    """
    tensors = None if checkpoint is None else read_tensors(Path(checkpoint))[0]
    library, _, model_name = name.partition(":")
    numbers: dict[str, Any] = {}
    info: dict[str, Any] = {"name": name, "weights": name if checkpoint is None else Path(checkpoint).name}
    if library not in _LOADERS:
        file, _, function = name.rpartition(":") if ".py:" in name else (name, "", "")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)  # without a checkpoint, weights are the same every time
            network, num_classes, input_size = _call_python_file(Path(file), function), None, None
        info |= {"name": f"{Path(file).name}:{function}", "file_sha256": sha256_of(file)}
    elif not model_name:
        raise UsageError(f"'{name}' contains no model name. Expected {library}:NAME.")
    else:
        network, numbers, num_classes, input_size = _LOADERS[library](model_name, tensors)
    if tensors is not None:
        load_tensors(network, strip_prefix(tensors, network), f"{checkpoint} does not fit {name}:")
    if normalize is not None and (tensors is not None or library not in _LOADERS):
        numbers = make_normalize(normalize).as_lists()
    model = HubModel(network, make_normalize(numbers))
    model.info = info | {"num_classes": num_classes, "normalise": model.normalize.as_lists(), "input_size": input_size}
    return model


def _call_python_file(file: Path, function: str) -> nn.Module:
    """Return the network that a function or class of a user's file makes."""
    module, where = import_python_file(file), f"{file}:{function}"
    if not hasattr(module, function):
        own = [key for key, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
        problem = f"{file} has no '{function}'." if function else f"{file} is a Python file: which function is meant?"
        raise UsageError(f"{problem} Pass {file}:NAME. It defines: {', '.join(own) or 'nothing'}.")
    make = getattr(module, function)
    try:
        network = make if isinstance(make, nn.Module) else make()
    except Exception as error:  # user code may raise anything
        raise UsageError(
            f"{where} failed with {describe_error(error, file)}. It must be a function or class that is called without "
            "arguments and returns an nn.Module."
        ) from error
    if not isinstance(network, nn.Module):
        raise UsageError(
            f"{where} returned {type(network).__name__}, expected an nn.Module that maps images to logits."
        )
    return network


def _build_for(build: Callable[..., nn.Module], tensors: Tensors) -> nn.Module:
    """Return a network without weights, with as many classes as the state dict that will be loaded into it."""
    network: nn.Module = build()
    tensors, own = strip_prefix(tensors, network), network.state_dict()
    other = [key for key in own if key in tensors and tensors[key].shape != own[key].shape]
    classes = {len(tensors[key]) for key in other if tensors[key].shape[1:] == own[key].shape[1:]}
    return network if len(classes) != 1 else build(num_classes=classes.pop())


def _load_torchvision(name: str, tensors: Tensors | None) -> HubResult:
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
    if tensors is not None:
        options: dict[str, Any] = {"weights": None}
        if name in models.list_models(models.segmentation):
            options["weights_backbone"] = None  # would be downloaded
            options |= {"aux_loss": True} if any("aux_classifier" in key for key in tensors) else {}
        network = _build_for(partial(models.get_model, name, **options), tensors)
    else:
        network = _download(f"torchvision:{name}@{chosen}", lambda: models.get_model(name, weights=weights))
    transform = weights.transforms()
    size = transform.crop_size[0] if getattr(transform, "crop_size", None) else None
    num_classes = None if tensors is not None else len(weights.meta["categories"])
    return network, {"mean": list(transform.mean), "std": list(transform.std)}, num_classes, size


def _load_timm(name: str, tensors: Tensors | None) -> HubResult:
    timm = _import("timm")
    if not (name.startswith("hf-hub:") or timm.is_model(name)):
        raise UsageError(f"timm has no model '{name}'. {suggest(name, timm.list_models())}See timm.list_models().")
    if tensors is not None:
        network: Any = _build_for(partial(timm.create_model, name, pretrained=False), tensors)
    else:
        network = _download(f"timm:{name}", lambda: timm.create_model(name, pretrained=True))
    settings = network.pretrained_cfg
    numbers = {"mean": list(settings["mean"]), "std": list(settings["std"])}
    return network, numbers, network.num_classes, settings["input_size"][-1]


def _load_hf(name: str, tensors: Tensors | None) -> HubResult:
    if tensors is not None:
        raise UsageError(
            f"A checkpoint cannot be loaded into 'hf:{name}'. Pass the folder of save_pretrained: hf:FOLDER."
        )
    transformers = _import("transformers")
    config = _download(f"hf:{name}", lambda: transformers.AutoConfig.from_pretrained(name))
    architectures = getattr(config, "architectures", None) or []
    is_segmentation = any(kind.endswith("ForSemanticSegmentation") for kind in architectures)
    auto = "AutoModelForSemanticSegmentation" if is_segmentation else "AutoModelForImageClassification"
    network = _download(f"hf:{name}", lambda: getattr(transformers, auto).from_pretrained(name))
    processor = _download(f"hf:{name}", lambda: transformers.AutoImageProcessor.from_pretrained(name))
    size = getattr(network.config, "image_size", None)
    return network, hf_normalization(processor), network.config.num_labels, size if isinstance(size, int) else None


def _load_smp(name: str, tensors: Tensors | None) -> HubResult:
    """Load a network of segmentation_models_pytorch: from a hub, or ARCHITECTURE/ENCODER for a checkpoint.

    The normalisation is ImageNet's, as for nearly all of its encoders.
    """
    smp = _import("segmentation_models_pytorch")
    if tensors is None:
        network = _download(f"smp:{name}", lambda: smp.from_pretrained(name))
    else:
        architecture, _, encoder = name.partition("/")
        try:
            build = partial(smp.create_model, architecture, encoder_name=encoder, encoder_weights=None)
            network = _build_for(lambda num_classes=1: build(classes=num_classes), tensors)
        except (KeyError, RuntimeError, ValueError) as error:
            raise UsageError(
                f"segmentation_models_pytorch cannot build '{name}' ({error}). Expected ARCHITECTURE/ENCODER, such as "
                "smp:unet/resnet34, with a checkpoint."
            ) from error
    head = [layer for layer in network.segmentation_head.modules() if isinstance(layer, nn.Conv2d)][-1]
    return network, NORMALIZATIONS["imagenet"], head.out_channels, None


def hf_normalization(processor: Any) -> dict[str, Any]:
    """Convert the settings of a transformers image processor, which expects bytes, to images in [0, 1]."""
    scale = 255.0 * processor.rescale_factor if getattr(processor, "do_rescale", True) else 255.0
    numbers: dict[str, Any] = {"scale": 1.0 if abs(scale - 1.0) < 1e-6 else scale}
    if getattr(processor, "do_normalize", True):
        numbers |= {"mean": list(processor.image_mean), "std": list(processor.image_std)}
    if getattr(processor, "do_flip_channel_order", False):
        numbers["order"] = "bgr"
    return numbers


_LOADERS: dict[str, Callable[[str, Tensors | None], HubResult]] = {
    "torchvision": _load_torchvision,
    "timm": _load_timm,
    "hf": _load_hf,
    "smp": _load_smp,
}


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
            extra = {"transformers": "hf", "segmentation_models_pytorch": "segmentation"}.get(library)
            if extra:
                remedy = f"Install it with `pip install driftlaw[{extra}]`."
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
        if hides := "weights_only" in str(error):  # torch advises to run the code in the file
            reason = "the file contains Python objects, which can run code when they are loaded"
        raise DataError(
            f"The weights of '{name}' could not be loaded ({type(error).__name__}: {reason}). Check the name, and that "
            "this machine can reach the library's hub or has the weights in its cache."
        ) from (None if hides else error)
