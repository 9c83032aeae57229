"""Models of torchvision, timm, transformers and users' Python files.

The wrapper is tested with a fake library. Tests with the real libraries use random weights and run only if the library
can be imported (extras ``vision`` and ``hf``).
"""

import importlib
import sys
import traceback
from types import ModuleType, SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import driftlaw
from driftlaw.errors import DataError, UsageError
from driftlaw.files import sha256_of
from driftlaw.models import hub, load_model, weights_sha256
from driftlaw.models.hub import hf_normalization, is_hub_name

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.5)
IMAGES = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def normalized(images, mean=MEAN, std=STD):
    return (images - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)


def network(classes=7):
    torch.manual_seed(0)
    head = nn.Linear(4, classes)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), head)


@pytest.fixture
def fake_timm(monkeypatch):
    def create_model(name, pretrained, num_classes=7):
        model = network(num_classes)
        model.is_pretrained = pretrained
        model.num_classes, model.pretrained_cfg = num_classes, {"mean": MEAN, "std": STD, "input_size": (3, 8, 8)}
        return model

    module = ModuleType("timm")
    module.is_model = lambda name: name == "resnet18"
    module.list_models = lambda: ["resnet18"]
    module.create_model = create_model
    monkeypatch.setitem(sys.modules, "timm", module)
    return module


def test_normalization_of_the_library_becomes_the_first_layer(fake_timm):
    model = driftlaw.load_model("timm:resnet18", num_classes=7)
    assert not model.training
    assert model.network.is_pretrained
    assert torch.allclose(model(IMAGES), network().eval()(normalized(IMAGES)), atol=1e-6)
    assert next(iter(model.children())) is model.normalize
    assert model.info == {
        "name": "timm:resnet18",
        "num_classes": 7,
        "normalise": {"mean": list(MEAN), "std": list(STD)},
        "input_size": 8,
        "weights": "timm:resnet18",
    }


def test_checkpoint_replaces_the_pretrained_weights_and_decides_the_number_of_classes(fake_timm, tmp_path):
    trained = network(3)
    nn.init.constant_(trained[-1].bias, 5.0)
    path = tmp_path / "trained.pth"
    torch.save(
        {"epoch": 3, "state_dict": {f"module.{key}": value for key, value in trained.state_dict().items()}}, path
    )
    model = load_model("timm:resnet18", checkpoint=path, num_classes=3)
    assert not model.network.is_pretrained
    assert torch.equal(model.network[-1].bias, torch.full((3,), 5.0))
    assert torch.allclose(model(IMAGES), trained.eval()(normalized(IMAGES)), atol=1e-6)
    assert (model.info["name"], model.info["weights"]) == ("timm:resnet18", "trained.pth")
    chosen = load_model("timm:resnet18", checkpoint=path, normalize="half")
    assert chosen.info["normalise"] == {"mean": [0.5] * 3, "std": [0.5] * 3}


def test_checkpoint_that_does_not_fit_names_the_tensors(fake_timm, tmp_path):
    path = tmp_path / "other.pth"
    torch.save({"0.weight": torch.ones(4, 3, 5, 5), "fc.weight": torch.ones(2, 2)}, path)
    with pytest.raises(DataError, match=r"other\.pth does not fit timm:resnet18:") as caught:
        load_model("timm:resnet18", checkpoint=path)
    assert "0.weight: expected (4, 3, 3, 3), found (4, 3, 5, 5)" in str(caught.value)
    assert "fc.weight: expected nothing, found (2, 2)" in str(caught.value)
    with pytest.raises(UsageError, match=r"The checkpoint missing\.pth is not a file"):
        load_model("timm:resnet18", checkpoint="missing.pth")
    with pytest.raises(UsageError, match="Pass the folder of save_pretrained"):
        load_model("hf:google/vit", checkpoint=path)


FILE = """
import torch
from torch import nn

ready = nn.Sequential(nn.Flatten(), nn.Linear(192, 3))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(4, 3)

    def forward(self, images):
        return self.head(self.layers(images))


def make():
    return Net()


def with_arguments(width):
    return Net()


def no_network():
    return {"weight": torch.ones(3)}


def broken():
    return undefined
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mynet.py"
    path.write_text(FILE)
    return path


@pytest.mark.parametrize("name", ["make", "Net"])
def test_network_of_a_python_file_has_the_same_weights_every_time(file, name):
    before = torch.get_rng_state()
    model, again = load_model(f"{file}:{name}"), load_model(f"{file}:{name}")
    assert torch.equal(before, torch.get_rng_state())
    assert not model.training
    assert weights_sha256(model) == weights_sha256(again)
    assert torch.equal(model(IMAGES), model.network(IMAGES))
    assert model.info["name"] == f"mynet.py:{name}"
    assert model.info["file_sha256"] == sha256_of(file)


def test_network_of_a_python_file_may_exist_when_it_is_imported(file):
    assert load_model(f"{file}:ready")(IMAGES).shape == (4, 3)


def test_network_of_a_python_file_takes_a_checkpoint_and_a_normalization(file, tmp_path):
    trained = load_model(f"{file}:make").network
    nn.init.constant_(trained.head.bias, 2.0)
    save_file(trained.state_dict(), tmp_path / "trained.safetensors")
    model = load_model(f"{file}:make", checkpoint=tmp_path / "trained.safetensors", normalize="half")
    assert torch.allclose(model(IMAGES), trained(normalized(IMAGES, [0.5] * 3, [0.5] * 3)), atol=1e-6)
    assert model.info["weights"] == "trained.safetensors"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mynet.py", r"mynet\.py is a Python file: which function is meant\? .*It defines: Net, make"),
        ("mynet.py:mak", r"mynet\.py has no 'mak'\. Pass .*mynet\.py:NAME\. It defines: Net, make"),
        ("missing.py:make", r"missing\.py is not a file"),
        ("mynet.py:with_arguments", r"failed with TypeError: .*'width'\. It must be .* without arguments"),
        ("mynet.py:no_network", r"no_network returned dict, expected an nn\.Module"),
        ("mynet.py:broken", r"failed with line 31: NameError: name 'undefined' is not defined"),
    ],
)
def test_wrong_python_file_or_name_raises(file, name, message):
    with pytest.raises(UsageError, match=message):
        load_model(file.parent / name)


def test_invalid_arguments_and_failed_downloads_raise(fake_timm):
    assert load_model("timm:resnet18", normalize={"mean": MEAN, "std": STD}).info["num_classes"] == 7
    with pytest.raises(UsageError, match=r"as stated in its metadata\. Requested was 'imagenet'"):
        load_model("timm:resnet18", normalize="imagenet")
    with pytest.raises(UsageError, match="timm:resnet18 has 7 classes, but num_classes=1000"):
        load_model("timm:resnet18", num_classes=1000)
    with pytest.raises(UsageError, match="is for files"):
        load_model("timm:resnet18", architecture="resnet50")
    with pytest.raises(UsageError, match=r"timm has no model 'resnt18'\. Did you mean 'resnet18'"):
        load_model("timm:resnt18")
    with pytest.raises(UsageError, match=r"'timm:' contains no model name\. Expected timm:NAME"):
        load_model("timm:")

    def fail(name, pretrained):
        raise OSError("cannot reach the hub\nmuch more")

    fake_timm.create_model = fail
    with pytest.raises(DataError, match=r"'timm:resnet18' could not be loaded \(OSError: cannot reach the hub\)"):
        load_model("timm:resnet18")


def test_the_advice_of_torch_to_run_code_is_not_repeated(fake_timm):
    def fail(name, pretrained):
        raise RuntimeError("Weights only load failed. Re-run `torch.load` with `weights_only=False`.")

    fake_timm.create_model = fail
    with pytest.raises(DataError, match="the file contains Python objects") as caught:
        load_model("timm:resnet18")
    assert "weights_only" not in "".join(traceback.format_exception(caught.value))


def test_output_objects_with_logits_are_unwrapped():
    class Output(nn.Module):
        def forward(self, images):
            return SimpleNamespace(logits=images.mean((2, 3)), hidden_states=None)

    model = hub.HubModel(Output(), hub.make_normalize(None))
    assert torch.equal(model(IMAGES), IMAGES.mean((2, 3)))


@pytest.mark.parametrize(
    ("changes", "numbers"),
    [
        ({}, {"scale": 1.0, "mean": list(MEAN), "std": list(STD)}),
        ({"do_normalize": False}, {"scale": 1.0}),
        ({"do_normalize": False, "do_rescale": False, "do_flip_channel_order": True}, {"scale": 255.0, "order": "bgr"}),
        ({"do_normalize": False, "rescale_factor": 1 / 127.5}, {"scale": 2.0}),
    ],
)
def test_hf_processor_settings_become_a_normalization(changes, numbers):
    settings = {"do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True}
    settings |= {"image_mean": MEAN, "image_std": STD} | changes
    assert hf_normalization(SimpleNamespace(**settings)) == numbers


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (RuntimeError("operator torchvision::nms does not exist\nmore"), r"not built for the installed torch.*'\+cpu'"),
        (ImportError("libcudart.so.12: cannot open shared object file"), "not built for the installed torch"),
        (ModuleNotFoundError("No module named 'torchvision'", name="torchvision"), r"pip install driftlaw\[vision\]"),
    ],
)
@pytest.mark.parametrize("name", ["torchvision:resnet50", "timm:resnet18"])
def test_failed_import_says_what_to_install(monkeypatch, error, message, name):
    def fail(module):
        raise error

    monkeypatch.setattr(importlib, "import_module", fail)
    with pytest.raises(UsageError, match=f"{name.partition(':')[0]} cannot be imported .*{message}") as caught:
        load_model(name)
    assert "\n" not in str(caught.value)


def test_missing_transformers_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UsageError, match=r"pip install driftlaw\[hf\]`\.$"):
        load_model("hf:google/vit")


def test_smp_network_has_the_classes_of_its_checkpoint(monkeypatch, tmp_path):
    class Unet(nn.Module):
        def __init__(self, classes):
            super().__init__()
            self.segmentation_head = nn.Sequential(nn.Conv2d(3, classes, 1), nn.Identity())

        def forward(self, images):
            return self.segmentation_head(images)

    def create_model(architecture, encoder_name, encoder_weights, classes):
        if (architecture, encoder_name, encoder_weights) != ("unet", "resnet18", None):
            raise KeyError(f"Wrong architecture type {architecture}")
        return Unet(classes)

    library = SimpleNamespace(create_model=create_model, from_pretrained=lambda name: Unet(9))
    monkeypatch.setitem(sys.modules, "segmentation_models_pytorch", library)
    torch.save(Unet(4).state_dict(), path := tmp_path / "unet.pth")
    model = load_model("smp:unet/resnet18", checkpoint=path, num_classes=4)
    assert model(IMAGES).shape == (len(IMAGES), 4, *IMAGES.shape[-2:])
    assert model.info["normalise"]["mean"] == [0.485, 0.456, 0.406]
    assert load_model("smp:smp-hub/unet").info["num_classes"] == 9
    with pytest.raises(UsageError, match=r"cannot build 'net/resnet18'.*Expected ARCHITECTURE/ENCODER"):
        load_model("smp:net/resnet18", checkpoint=path)
    monkeypatch.setitem(sys.modules, "segmentation_models_pytorch", None)
    with pytest.raises(UsageError, match=r"pip install driftlaw\[segmentation\]`\.$"):
        load_model("smp:unet/resnet18", checkpoint=path)


@pytest.mark.parametrize("name", ["resnet18", "weights/timm.pt", "C:weights.pt", "timm", ""])
def test_other_names_are_not_hub_names(name):
    assert not is_hub_name(name)


def real(library, attribute="__name__"):
    """Return an installed library, or skip the test. A mismatched torchvision raises RuntimeError, not ImportError."""
    try:
        module = importlib.import_module(library)
        getattr(module, attribute)  # transformers imports torchvision on access
        return module
    except (ImportError, RuntimeError, OSError) as error:
        pytest.skip(f"{library} cannot be imported: {error}")


def test_real_torchvision_model(monkeypatch):
    models = real("torchvision.models")
    get_model = models.get_model
    monkeypatch.setattr(models, "get_model", lambda name, weights: get_model(name, weights=None))  # no download
    model = load_model("torchvision:resnet18", num_classes=1000)
    assert model.normalize.describe().startswith("'imagenet'")
    assert (model.info["input_size"], model(torch.rand(2, 3, 64, 64)).shape) == (224, (2, 1000))
    load_model("torchvision:resnet50@IMAGENET1K_V2")
    with pytest.raises(UsageError, match=r"no weights 'V3' for resnet50. Expected one of: IMAGENET1K_V1"):
        load_model("torchvision:resnet50@V3")
    with pytest.raises(UsageError, match=r"torchvision has no model 'resnet5O'\. Did you mean 'resnet50'"):
        load_model("torchvision:resnet5O")


def test_real_timm_model(monkeypatch):
    timm = real("timm")
    create_model = timm.create_model
    monkeypatch.setattr(timm, "create_model", lambda name, pretrained: create_model(name, pretrained=False))
    model = load_model("timm:resnet18", num_classes=1000)
    images = torch.rand(2, 3, 64, 64)
    numbers = model.info["normalise"]
    expected = model.network(normalized(images, numbers["mean"], numbers["std"]))
    torch.testing.assert_close(model(images), expected)
    assert model.info["input_size"] == 224


def test_real_transformers_model(tmp_path):
    transformers = real("transformers", "ViTForImageClassification")
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=32, num_labels=5
    )
    transformers.ViTForImageClassification(config).save_pretrained(tmp_path)
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(tmp_path)
    model = load_model(f"hf:{tmp_path}", num_classes=5)
    assert model.info["normalise"] == {"mean": [0.5] * 3, "std": [0.5] * 3}
    assert model.info["input_size"] == 32
    assert model(torch.rand(2, 3, 32, 32)).shape == (2, 5)
