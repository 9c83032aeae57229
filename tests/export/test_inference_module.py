"""The part of an adapter that produces logits."""

from __future__ import annotations

import pytest
import torch

from driftlaw.base import Adapter, StepOutput
from driftlaw.errors import UsageError
from driftlaw.export import extract_model
from driftlaw.export.inference_module import InferenceModule
from driftlaw.methods import make_adapter
from tests.export.small_model import images, small_model


@pytest.mark.parametrize("method", ["source", "norm", "tent", "cotta", "adacontrast", "palm", "sar", "deyo", "rotta"])
@torch.no_grad()
def test_single_model_is_copied_and_returns_the_adapters_logits(method):
    adapter = make_adapter(method, small_model(), {"augmentations": 2} if method == "cotta" else {})
    adapter(images(6))
    own = extract_model(adapter, images(6))
    torch.testing.assert_close(own(images(6)), adapter.predict(images(6)))
    assert type(own) is type(small_model())
    expected = adapter.teacher if method in ("cotta", "rotta") else adapter.model
    assert own is not expected
    assert all(torch.equal(a, b) for a, b in zip(own.parameters(), expected.parameters(), strict=True))


@torch.no_grad()
def test_prior_correction_is_a_part_of_the_extracted_module():
    adapter = make_adapter("roid", small_model(), {})
    adapter(images(6))
    own = extract_model(adapter, images(6))
    torch.testing.assert_close(own(images(6)), adapter.predict(images(6)))
    program = torch.export.export(
        own, (images(6),), dynamic_shapes=({0: torch.export.Dim("batch", min=2)},), strict=False
    )
    torch.testing.assert_close(program.module()(images(3)), own(images(3)))
    plain = make_adapter("roid", small_model(), {"prior_correction": False})
    assert type(extract_model(plain, images(6))) is type(small_model())


@torch.no_grad()
def test_correction_of_lame_is_a_part_of_the_extracted_module():
    adapter = make_adapter("lame", small_model(), {})
    own = extract_model(adapter, images(6))
    torch.testing.assert_close(own(images(6)), adapter.predict(images(6)))


class MeanOfTwo(Adapter):
    """Predicts with the mean of two models."""

    name = "mean-of-two"  # not registered

    def setup(self, train_data):
        self.other = small_model(seed=8)
        self.unused = small_model(seed=9)

    def update(self, images, plan):
        return StepOutput(self.forward_logits(images))

    def forward_logits(self, images):
        return (self.model(images) + self.other(images)) / 2


class Shifted(Adapter):
    """Adds a buffer of the adapter to the logits."""

    name = "shifted"  # not registered

    def setup(self, train_data):
        self.register_buffer("shift", torch.ones(()))

    def update(self, images, plan):
        return StepOutput(self.forward_logits(images))

    def forward_logits(self, images):
        return self.model(images) + self.shift


@torch.no_grad()
def test_several_models_are_combined_and_unused_ones_left_out():
    adapter = MeanOfTwo(small_model())
    own = extract_model(adapter, images(6))
    assert isinstance(own, InferenceModule)
    assert [name for name, _ in own.named_children()] == ["model", "other"]
    torch.testing.assert_close(own(images(6)), adapter.predict(images(6)))


def test_logits_from_more_than_models_are_rejected():
    with pytest.raises(UsageError, match="more than its models"):
        extract_model(Shifted(small_model()), images(6))
