"""Networks with float16 or bfloat16 weights: float32 copies, finite predictions, the caller's dtype outside."""

import copy

import pytest
import torch
from torch import nn

import driftlaw
from driftlaw.errors import UsageError
from driftlaw.testing.fixtures import SyntheticDataset, make_images, tiny_model
from tests.base.models import small_model

STEPS = 5


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("method", driftlaw.list_methods())
def test_predictions_of_16_bit_networks_stay_finite_and_equal_those_of_a_float32_copy(method, dtype):
    settings = {"augmentations": 2} if method == "cotta" else {}
    model = tiny_model().to(dtype)
    adapter = driftlaw.adapt(model, method, train_data=SyntheticDataset(), **settings)
    wide = driftlaw.adapt(copy.deepcopy(model).float(), method, train_data=SyntheticDataset(), **settings)
    for number in range(STEPS):
        images = make_images(number, count=32, dtype=dtype)
        logits = adapter(images)
        assert logits.dtype == dtype
        assert logits.isfinite().all()
        assert torch.equal(logits, wide(images.float()).to(dtype))
    assert adapter.predict(images).dtype == dtype
    assert {value.dtype for value in model.parameters()} == {dtype}
    assert {value.dtype for value in adapter.parameters()} == {torch.float32}


def test_16_bit_networks_accept_floats_and_bytes():
    adapter = driftlaw.adapt(small_model().half(), "tent", mean=[0.5] * 3, std=[0.25] * 3, inputs="unit")
    pixels = (make_images() * 255).byte()
    for images in (make_images(dtype=torch.float16), make_images(dtype=torch.bfloat16), make_images(), pixels):
        assert adapter(images).dtype == torch.float16


def test_saved_states_resets_and_moves_of_16_bit_networks():
    model = small_model().bfloat16()
    adapter, other = (driftlaw.adapt(model, "tent") for _ in range(2))
    first = adapter(make_images(dtype=torch.bfloat16))
    adapter(make_images(1, dtype=torch.bfloat16))
    other.load_state_dict(adapter.state_dict())
    images = make_images(2, dtype=torch.bfloat16)
    assert torch.equal(adapter(images), other(images))
    adapter.reset()
    assert torch.equal(adapter(make_images(dtype=torch.bfloat16)), first)


@pytest.mark.parametrize("convert", [nn.Module.half, nn.Module.bfloat16, lambda adapter: adapter.to(torch.float16)])
def test_an_adapter_cannot_be_converted_to_16_bits(adapter, convert):
    before = copy.deepcopy(adapter.state_dict())
    with pytest.raises(UsageError, match="stay float32"):
        convert(adapter)
    assert all(torch.equal(value, before[name]) for name, value in adapter.named_parameters())


def test_a_network_that_converts_to_16_bits_inside_gets_a_clear_error():
    class Halves(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = small_model().half()

        def forward(self, images):
            return self.layers(images.half())

    with pytest.raises(UsageError, match=r"converts values to 16 bits in forward\(\)"):
        driftlaw.adapt(Halves(), "tent")(make_images(dtype=torch.float16))
