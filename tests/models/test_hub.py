"""Networks of other libraries, which stand-ins play here."""

import importlib
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn

import driftlaw
from driftlaw.errors import DataError, UsageError
from driftlaw.models import load_model
from driftlaw.models.hub import is_of_a_library

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.5)
IMAGES = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def network(classes=7):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, classes)
    )


def normalised():
    return (IMAGES - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)


def stand_in(monkeypatch, name, **content):
    module = ModuleType(name)
    vars(module).update(content)
    monkeypatch.setitem(sys.modules, name, module)
    return module


class Weights:
    """One set of torchvision's weights."""

    def __init__(self, name, mean):
        self.name = name
        self.meta = {"categories": list("abcdefg")}
        self.transforms = lambda: SimpleNamespace(mean=mean, std=STD, crop_size=[8])


@pytest.fixture
def torchvision(monkeypatch):
    sets = [Weights("IMAGENET1K_V1", MEAN), Weights("IMAGENET1K_V2", (0.0, 0.0, 0.0))]
    asked = []

    def get_model(name, weights):
        asked.append((name, weights.name))
        return network()

    module = stand_in(
        monkeypatch,
        "torchvision.models",
        list_models=lambda: ["resnet50", "resnet18"],
        get_model_weights=lambda name: sets,
        get_model=get_model,
        asked=asked,
    )
    stand_in(monkeypatch, "torchvision", models=module)
    return module


@pytest.fixture
def timm(monkeypatch):
    def create_model(name, pretrained):
        assert pretrained
        model = network()
        model.num_classes, model.pretrained_cfg = 7, {"mean": MEAN, "std": STD, "input_size": (3, 8, 8)}
        return model

    return stand_in(
        monkeypatch,
        "timm",
        is_model=lambda name: name == "resnet18",
        list_models=lambda: ["resnet18"],
        create_model=create_model,
    )


class HfNetwork(nn.Module):
    """Answers with an object that has logits, as transformers' networks do."""

    def __init__(self):
        super().__init__()
        self.network = network()
        self.config = SimpleNamespace(num_labels=7, image_size=8)

    def forward(self, images):
        return SimpleNamespace(logits=self.network(images), hidden_states=None)


@pytest.fixture
def transformers(monkeypatch):
    processor = SimpleNamespace(
        do_rescale=True, rescale_factor=1 / 255, do_normalize=True, image_mean=list(MEAN), image_std=list(STD)
    )
    module = stand_in(
        monkeypatch,
        "transformers",
        AutoModelForImageClassification=SimpleNamespace(from_pretrained=lambda name: HfNetwork()),
        AutoImageProcessor=SimpleNamespace(from_pretrained=lambda name: processor),
    )
    module.processor = processor
    return module


@pytest.mark.parametrize(
    ("library", "name"),
    [("torchvision", "torchvision:resnet50"), ("timm", "timm:resnet18"), ("transformers", "hf:google/vit-tiny")],
)
def test_the_librarys_own_normalisation_becomes_the_first_layer(request, library, name):
    request.getfixturevalue(library)
    model = driftlaw.load_model(name, num_classes=7)
    assert not model.training
    assert torch.allclose(model(IMAGES), network().eval()(normalised()), atol=1e-6)
    assert next(iter(model.children())) is model.normalize
    assert model.info == {
        "name": name,
        "num_classes": 7,
        "normalise": {"mean": list(MEAN), "std": list(STD)},
        "input_size": 8,
        "weights": name,
    }


@pytest.mark.parametrize(
    ("library", "name"),
    [("torchvision", "torchvision:resnet50"), ("timm", "timm:resnet18"), ("transformers", "hf:vit")],
)
def test_another_normalisation_or_number_of_classes_is_refused(request, library, name):
    request.getfixturevalue(library)
    assert load_model(name, normalize={"mean": MEAN, "std": STD}).info["num_classes"] == 7
    with pytest.raises(UsageError, match=r"according to its own metadata; asked for «imagenet»"):
        load_model(name, normalize="imagenet")
    with pytest.raises(UsageError, match=f"{name} answers 7 classes, expected 1000"):
        load_model(name, num_classes=1000)
    with pytest.raises(UsageError, match="names its own network"):
        load_model(name, architecture="resnet50")


def test_torchvision_weights_of_the_papers_are_the_default_and_others_can_be_named(torchvision):
    load_model("torchvision:resnet50")
    assert load_model("torchvision:resnet50@IMAGENET1K_V2").info["normalise"]["mean"] == [0.0] * 3
    assert torchvision.asked == [("resnet50", "IMAGENET1K_V1"), ("resnet50", "IMAGENET1K_V2")]
    with pytest.raises(UsageError, match=r"no weights «V3» for resnet50: expected IMAGENET1K_V1, IMAGENET1K_V2"):
        load_model("torchvision:resnet50@V3")


def test_a_name_that_a_library_does_not_know_is_told(torchvision, timm):
    with pytest.raises(UsageError, match="torchvision has no network «resnet5O»: Did you mean 'resnet50'"):
        load_model("torchvision:resnet5O")
    with pytest.raises(UsageError, match="timm has no network «resnt18»: Did you mean 'resnet18'"):
        load_model("timm:resnt18")
    with pytest.raises(UsageError, match="«timm:» names no network: expected timm:NAME"):
        load_model("timm:")


def test_weights_that_cannot_be_downloaded_are_told(timm):
    def fail(name, pretrained):
        raise OSError("cannot reach the hub\nmuch more")

    timm.create_model = fail
    with pytest.raises(DataError, match=r"«timm:resnet18» could not be had \(OSError: cannot reach the hub\)"):
        load_model("timm:resnet18")


def test_a_processor_that_does_less_is_followed(transformers):
    transformers.processor.do_normalize = False
    assert load_model("hf:vit").info["normalise"] == {"mean": [0.0] * 3, "std": [1.0] * 3}
    transformers.processor.do_rescale = False
    transformers.processor.do_flip_channel_order = True
    assert load_model("hf:vit").info["normalise"] == {
        "mean": [0.0] * 3,
        "std": [1.0] * 3,
        "scale": 255.0,
        "order": "bgr",
    }


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RuntimeError("operator torchvision::nms does not exist\nmore"), "not built for the installed torch.*«.cpu»"),
        (ImportError("libcudart.so.12: cannot open shared object file"), "not built for the installed torch"),
        (ModuleNotFoundError("No module named 'torchvision'", name="torchvision"), r"pip install driftlaw\[vision\]"),
    ],
)
@pytest.mark.parametrize("name", ["torchvision:resnet50", "timm:resnet18"])
def test_a_library_that_does_not_import_says_what_to_install(monkeypatch, error, told, name):
    def fail(module):
        raise error

    monkeypatch.setattr(importlib, "import_module", fail)
    with pytest.raises(UsageError, match=f"{name.partition(':')[0]} cannot be imported .*{told}") as caught:
        load_model(name)
    assert "\n" not in str(caught.value)


def test_transformers_has_an_extra_of_its_own(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UsageError, match=r"pip install driftlaw\[hf\]`$"):
        load_model("hf:google/vit")


@pytest.mark.parametrize("name", ["resnet18", "weights/timm.pt", "C:weights.pt", "timm", ""])
def test_other_names_are_no_librarys(name):
    assert not is_of_a_library(name)
