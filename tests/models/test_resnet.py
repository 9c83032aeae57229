"""Bottleneck ResNets."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from driftlaw.errors import UsageError
from driftlaw.models.normalize import Normalize
from driftlaw.models.resnet import BLOCKS, Bottleneck, ResNet


def meta_model(depth=50, classes=1000, **settings):
    """Return a model on the meta device, for names, shapes and counts."""
    with torch.device("meta"):
        return ResNet(depth, classes, **settings).eval()


def macs(model, size):
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.empty(1, 3, size, size, device="meta"))
    return counter.get_total_flops() / 2e9


RESNEXT = {"groups": 32, "width": 4}
WIDE = {"width": 128}


@pytest.mark.parametrize(
    ("settings", "count"),
    [
        ({}, 25_557_032),
        ({"form": "keras"}, 25_636_712 - 53_120),  # Keras counts the statistics of its norms too
        (RESNEXT, 25_028_904),
        (WIDE, 68_883_240),
    ],
)
def test_published_parameter_counts(settings, count):
    assert sum(value.numel() for value in meta_model(**settings).parameters()) == count


@pytest.mark.parametrize(
    ("settings", "size", "published"),
    [
        ({}, 224, 4.09),
        ({"form": "keras"}, 224, 3.86),
        (RESNEXT, 224, 4.23),
        (WIDE, 224, 11.40),
        ({"form": "cifar"}, 32, 1.30),
    ],
)
def test_published_multiply_accumulate_counts(settings, size, published):
    assert macs(meta_model(**settings), size) == pytest.approx(published, rel=0.005)


def test_names_are_those_of_torchvision():
    names = set(meta_model(14).state_dict())
    norm = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    expected = {"conv1.weight", "fc.weight", "fc.bias"} | {f"bn1.{part}" for part in norm}
    for stage in range(1, 5):
        block = f"layer{stage}.0"
        expected |= {f"{block}.conv{number}.weight" for number in (1, 2, 3)} | {f"{block}.downsample.0.weight"}
        norms = [f"{block}.bn{number}" for number in (1, 2, 3)] + [f"{block}.downsample.1"]
        expected |= {f"{name}.{part}" for name in norms for part in norm}
    assert names == expected
    assert {f"layer3.{number}.conv2.weight" for number in range(6)} < set(meta_model().state_dict())
    assert "layer3.6.conv2.weight" not in meta_model().state_dict()


@pytest.mark.parametrize(
    ("settings", "shape"),
    [({}, (64, 64, 3, 3)), (RESNEXT, (128, 4, 3, 3)), (WIDE, (128, 128, 3, 3))],
)
def test_groups_and_width_set_the_inner_convolution(settings, shape):
    model = meta_model(**settings)
    assert tuple(model.layer1[0].conv2.weight.shape) == shape
    assert model.layer4[2].conv2.weight.shape[0] == 8 * shape[0]
    assert model.layer4[2].conv3.weight.shape[0] == model.fc.in_features == 2048


@pytest.mark.parametrize(("form", "strides"), [("torchvision", (1, 2)), ("cifar", (1, 2)), ("keras", (2, 1))])
def test_position_of_the_stride_by_form(form, strides):
    model = meta_model(14, 10, form=form)
    for stage in (model.layer2, model.layer3, model.layer4):
        assert (stage[0].conv1.stride[0], stage[0].conv2.stride[0]) == strides
        assert stage[0].downsample[0].stride[0] == 2
    assert model.layer1[0].conv2.stride == model.layer1[0].conv1.stride == (1, 1)


def test_only_keras_has_biases_and_a_large_epsilon():
    for form, eps in (("torchvision", 1e-5), ("cifar", 1e-5), ("keras", 1e-3)):
        modules = list(meta_model(14, 10, form=form).modules())
        assert {module.eps for module in modules if isinstance(module, torch.nn.BatchNorm2d)} == {eps}
        biases = {module.bias is not None for module in modules if isinstance(module, torch.nn.Conv2d)}
        assert biases == {form == "keras"}


@pytest.mark.parametrize("keras", [False, True])
def test_block_matches_its_definition(keras):
    torch.manual_seed(0)
    block = Bottleneck(6, 2, 2, inner=4, groups=2, keras=keras).eval()
    features = torch.randn(2, 6, 8, 8)
    flat = (1 + (1e-3 if keras else 1e-5)) ** 0.5
    first, second = (2, 1) if keras else (1, 2)
    hidden = F.conv2d(features, block.conv1.weight, block.conv1.bias, first).div(flat).relu()
    hidden = F.conv2d(hidden, block.conv2.weight, block.conv2.bias, second, padding=1, groups=2).div(flat).relu()
    hidden = F.conv2d(hidden, block.conv3.weight, block.conv3.bias).div(flat)
    shortcut = F.conv2d(features, block.downsample[0].weight, block.downsample[0].bias, 2).div(flat)
    torch.testing.assert_close(block(features), (hidden + shortcut).relu())


def test_pooling_equals_keras_zero_padding():
    torch.manual_seed(0)
    model = ResNet(14, 4, form="keras").eval()
    images = torch.rand(2, 3, 65, 65)
    stem = F.relu(model.bn1(model.conv1(images)))
    assert torch.equal(model.maxpool(stem), F.max_pool2d(F.pad(stem, (1, 1, 1, 1)), 3, 2))


@pytest.mark.parametrize(("form", "size"), [("torchvision", 64), ("keras", 64), ("cifar", 32)])
def test_forward_is_head_of_features_after_normalization(form, size):
    torch.manual_seed(0)
    model = ResNet(14, 5, form=form, normalize=Normalize([0.5] * 3, [0.25] * 3)).eval()
    images = torch.rand(2, 3, size, size)
    features = model.forward_features(images)
    assert features.shape == (2, 2048)
    assert torch.equal(model(images), model.forward_head(features))
    plain = ResNet(14, 5, form=form).eval()
    plain.load_state_dict(model.state_dict())
    assert torch.equal(model(images), plain((images - 0.5) / 0.25))


@pytest.mark.parametrize(("depth", "form"), [(49, "torchvision"), (50, "caffe"), (18, "cifar")])
def test_invalid_form_raises(depth, form):
    with pytest.raises(UsageError, match=f"Unknown form of a ResNet '{depth} {form}'"):
        ResNet(depth, 10, form=form)


def test_depth_is_the_number_of_layers():
    for depth, blocks in BLOCKS.items():
        assert 3 * sum(blocks) + 2 == depth
