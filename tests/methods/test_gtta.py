"""GTTA-MIX against its reference implementation, in float64, and batches without kept labels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import driftlaw
from driftlaw.datasets import ArrayImages
from driftlaw.errors import UsageError
from driftlaw.models import build_model
from driftlaw.profiling import count_flops
from tests.methods.images import TERMS, batches
from tests.reference.gtta import ReferenceGtta
from tests.reference.tolerance import assert_same_step

AFTER_AN_UPDATE = 1e-9  # the logits are from after an update, which amplifies rounding errors by up to lr/ε = 1e6


@pytest.fixture
def network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = build_model("wrn_10_1", num_classes=4).double().eval()
        with torch.no_grad():
            model.head.weight.mul_(10)  # confident about some images only
        return model


@pytest.fixture(scope="module")
def train_data() -> ArrayImages:
    generator = np.random.default_rng(0)
    pixels = generator.integers(256, size=(20, 16, 16, 3), dtype=np.uint8)
    return ArrayImages("synthetic", pixels, np.arange(20) % 4, ["a", "b", "c", "d"])


def drawn(train_data: ArrayImages, generator: torch.Generator) -> tuple[torch.Tensor, list[int]]:
    numbers = torch.randint(len(train_data), (6,), generator=generator).numpy()
    pixels = torch.from_numpy(train_data.images(numbers)).double().permute(0, 3, 1, 2) / 255
    return pixels, train_data.labels[numbers].tolist()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"first_confidence": 0.7, "confidence_momentum": 1.0},
        {"first_confidence": 0.5, "learning_rate": 1e-3},
        {"first_confidence": 0.5, "test_share": 0.8, "optimizer": "sgd", "learning_rate": 0.01},
    ],
    ids=str,
)
def test_steps_equal_the_reference(network, train_data, settings):
    adapter = driftlaw.adapt(network, "gtta", seed=7, train_data=train_data, **settings)
    reference = ReferenceGtta(network, **settings)
    generator = torch.Generator().manual_seed(7)
    learning_rate = settings.get("learning_rate", 1e-5)
    for images in batches(3):
        output = adapter.step(images)
        logits, kept = reference.step(images, *drawn(train_data, generator))
        torch.testing.assert_close(output.logits, logits, rtol=0, atol=AFTER_AN_UPDATE)
        assert output.diagnostics["kept"] == pytest.approx(kept / 6)
        assert output.diagnostics["confidence"] == pytest.approx(reference.confidence)
        # The second step of a batch starts from weights that differ by the rounding error of the first.
        assert_same_step(
            adapter.model, reference.model, reference.gradients, 2 * learning_rate, terms=TERMS, gradient_rtol=1e-8
        )


def test_some_pseudo_labels_are_kept(network, train_data):
    adapter = driftlaw.adapt(network, "gtta", train_data=train_data, first_confidence=0.7, confidence_momentum=1.0)
    assert 0 < adapter.step(batches(1)[0]).diagnostics["kept"] < 1


def test_a_batch_without_kept_labels_takes_only_the_mixed_step(network, train_data):
    settings = {"first_confidence": 1.0, "confidence_momentum": 1.0, "learning_rate": 1e-3}
    adapter = driftlaw.adapt(network, "gtta", train_data=train_data, **settings)
    for images in batches(3):
        output = adapter.step(images)
        assert output.diagnostics["kept"] == 0
        # Logits are from after the mixed step, and the model has not changed since: there was no second step.
        assert torch.equal(adapter.predict(images), output.logits)
    assert all(state["step"] == 3 for state in adapter.optimizer.state.values())
    assert all(value.isfinite().all() for value in adapter.model.parameters())


def test_kept_labels_cause_a_second_step(network, train_data):
    adapter = driftlaw.adapt(network, "gtta", train_data=train_data, first_confidence=0.0, confidence_momentum=1.0)
    output = adapter.step(batches(1)[0])
    assert output.diagnostics["kept"] == 1
    assert all(state["step"] == 2 for state in adapter.optimizer.state.values())


def test_training_data_is_required(network):
    with pytest.raises(UsageError, match="needs the training data"):
        driftlaw.adapt(network, "gtta")


def test_training_data_of_another_size_is_refused(network, train_data):
    adapter = driftlaw.adapt(network, "gtta", train_data=train_data)
    with pytest.raises(UsageError, match=r"\(3, 16, 16\).*\(3, 24, 24\)"):
        adapter(torch.rand(2, 3, 24, 24, dtype=torch.float64))


def test_the_counted_cost_equals_the_declared_one(network, train_data):
    adapter = driftlaw.adapt(network, "gtta", train_data=train_data, first_confidence=0.0, confidence_momentum=1.0)
    (images,) = batches(1)
    _, forward = count_flops(lambda: adapter.model(images))
    _, step = count_flops(lambda: adapter.step(images))
    assert step / forward == pytest.approx(adapter.forward_cost + adapter.backward_cost, rel=0.1)
    assert (adapter.forward_cost, adapter.backward_cost) == (4, 4)


def test_training_data_may_be_a_torch_dataset(network, train_data):
    pixels = torch.from_numpy(train_data.images(np.arange(len(train_data)))).permute(0, 3, 1, 2)
    given = torch.utils.data.TensorDataset(pixels, torch.from_numpy(train_data.labels))
    images = next(iter(batches(1)))
    results = []
    for each in (train_data, given):
        adapter = driftlaw.adapt(network, "gtta", train_data=each, first_confidence=0.5)
        results.append([adapter(images) for _ in range(2)][-1])
    assert torch.equal(*results)
