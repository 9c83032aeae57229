"""Models whose weights cannot be adapted are refused when an adapter is made, and are not changed."""

import warnings

import pytest
import torch
from torch import nn

import driftlaw
from driftlaw.errors import UsageError
from driftlaw.methods import list_methods
from driftlaw.models.check_weights import MAX_PROBLEMS, check_weights
from driftlaw.testing.fixtures import SyntheticDataset


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 4)
    )


def with_value(name, value):
    model = network()
    with torch.no_grad():
        model.get_parameter(name).view(-1)[1] = value if name.endswith("weight") else 0.0
    return model


def with_buffer(name, value):
    model = network()
    model.register_buffer(name, value) if "." not in name else model.get_buffer(name).copy_(value)
    return model


def with_dtype(dtype):
    model = network()
    model[0].weight = nn.Parameter(torch.ones(4, 3, 3, 3).to(dtype), requires_grad=False)
    return model


def lazy():
    return nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(4))


def quantized():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch will move this function to another package
        return torch.ao.quantization.quantize_dynamic(network(), {nn.Linear}, dtype=torch.qint8)


REFUSED = {
    "nan weight": (lambda: with_value("5.weight", float("nan")), r"5\.weight: contains NaN or infinite"),
    "infinite weight": (lambda: with_value("0.weight", float("-inf")), r"0\.weight: contains NaN or infinite"),
    "nan statistics": (lambda: with_buffer("1.running_var", float("nan")), r"1\.running_var: contains NaN"),
    "infinite statistics": (lambda: with_buffer("1.running_mean", float("inf")), r"1\.running_mean: contains NaN"),
    "nan buffer": (lambda: with_buffer("scale", torch.tensor(float("nan"))), "scale: contains NaN"),
    "integer": (lambda: with_dtype(torch.int32), r"0\.weight: dtype torch\.int32; expected float32"),
    "complex": (lambda: with_dtype(torch.complex64), r"0\.weight: dtype torch\.complex64"),
    "float8": (lambda: with_dtype(torch.float8_e4m3fn), r"0\.weight: dtype torch\.float8_e4m3fn"),
    "lazy": (lazy, r"0\.weight: not initialised; pass a batch through the model first"),
    "meta": (lambda: network().to("meta"), r"0\.weight: on the device 'meta'"),
    "quantised": (quantized, "5: a quantised Linear; pass the model from before"),
}


@pytest.mark.parametrize("method", ["source", "tent", "law", "cotta"])
@pytest.mark.parametrize("case", REFUSED)
def test_weights_that_cannot_be_adapted_are_refused_at_construction(method, case):
    make, message = REFUSED[case]
    model = make()
    with pytest.raises(UsageError, match=f"^The weights of the model cannot be used:\n  - {message}"):
        driftlaw.adapt(model, method)
    assert all(value.requires_grad for value in model.parameters() if value.dtype == torch.float32)


@pytest.mark.parametrize("method", sorted(list_methods()))
def test_every_method_refuses_nan(method):
    with pytest.raises(UsageError, match="contains NaN"):
        driftlaw.adapt(with_value("5.weight", float("nan")), method, train_data=SyntheticDataset())


def test_buffers_may_be_integers_infinite_masks_complex_or_empty():
    model = network()
    model.register_buffer("index", torch.arange(4))
    model.register_buffer("mask", torch.tensor([0.0, float("-inf")]))
    model.register_buffer("frequencies", torch.ones(2, dtype=torch.complex64))
    model.register_buffer("none", torch.empty(0))
    check_weights(model)
    assert driftlaw.adapt(model, "tent").predict(torch.rand(2, 3, 8, 8)).shape == (2, 4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_floating_point_weights_are_accepted(dtype):
    check_weights(network().to(dtype))


def test_many_problems_are_counted():
    model = network().to("meta")
    with pytest.raises(UsageError, match=r"and \d+ more$") as caught:
        check_weights(model)
    assert len(str(caught.value).splitlines()) == MAX_PROBLEMS + 2


def test_a_lazy_model_that_has_seen_a_batch_is_accepted():
    model = lazy()
    model(torch.rand(2, 3, 8, 8))
    assert driftlaw.adapt(model, "norm")(torch.rand(2, 3, 8, 8)).shape == (2, 4)
