"""ETA, EATA and RDumb against their reference implementation, in float64, and steps without a kept image."""

from __future__ import annotations

import copy
import math

import pytest
import torch

import driftlaw
from driftlaw.components.losses import entropy
from driftlaw.components.train_data import TrainData
from driftlaw.testing.fixtures import SyntheticDataset
from tests.methods.images import TERMS, batches
from tests.reference.eata import ReferenceEata
from tests.reference.tolerance import assert_same_sgd_step, assert_same_step


@pytest.fixture
def diverse_network(network):
    """The test network with larger logits whose mean is 0: it predicts all classes, some of them confidently."""
    with torch.no_grad():
        network.head.weight.mul_(30)
        adapter = driftlaw.adapt(network, "norm")
        network.head.bias.sub_(torch.cat([adapter(images) for images in batches(4)]).mean(dim=0))
    return network


def compare(adapter, reference, count) -> list[int]:
    """Take the same steps with both and return how many images each kept."""
    kept = []
    for images in batches(count):
        output, expected = adapter.step(images), reference.step(images)
        torch.testing.assert_close(output.logits, expected, rtol=0, atol=1e-12)
        assert float(output.diagnostics["kept"]) == pytest.approx(len(reference.kept) / len(images))
        if adapter.config.optimizer == "sgd":
            assert_same_sgd_step(adapter.model, reference.model)
        else:
            assert_same_step(
                adapter.model, reference.model, reference.gradients, adapter.config.learning_rate, terms=TERMS
            )
        kept.append(len(reference.kept))
        if reference.mean_probabilities is not None:
            torch.testing.assert_close(adapter.mean_probabilities, reference.mean_probabilities, rtol=0, atol=1e-12)
    return kept


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"optimizer": "sgd", "learning_rate": 0.01, "probability_momentum": 0.5},
        {"entropy_threshold": 0.7, "similarity_threshold": 0.8},
    ],
    ids=str,
)
def test_steps_equal_the_reference(diverse_network, settings):
    adapter = driftlaw.adapt(diverse_network, "eta", **settings)
    reference = ReferenceEata(diverse_network, **settings)
    kept = compare(adapter, reference, 4)
    assert any(kept[1:])
    assert settings.get("entropy_threshold") or 0 in kept


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_batches_without_kept_images_change_nothing(diverse_network, optimizer):
    """All predictions are more similar to the running mean than 1e-9, so that only the first batch has kept images."""
    adapter = driftlaw.adapt(diverse_network, "eta", similarity_threshold=1e-9, optimizer=optimizer)
    first, *others = batches(4)
    assert adapter.step(first).diagnostics["kept"] > 0
    before = copy.deepcopy(adapter.state_dict())
    for images in others:
        assert adapter.step(images).diagnostics["kept"] == 0
    after = adapter.state_dict()
    for name in ["mean_probabilities", *(f"model.{name}" for name in adapter.trainable_names)]:
        assert torch.equal(after[name], before[name]), name
    moments = [extra["optimizers"]["optimizer"]["state"] for extra in (before["_extra_state"], after["_extra_state"])]
    for index, values in moments[0].items():
        assert all(torch.equal(moments[1][index][name], value) for name, value in values.items())


def test_a_first_batch_without_kept_images_leaves_no_trace(diverse_network):
    """The next steps equal those of the reference, which has not created its moments yet."""
    with torch.no_grad():
        source = ReferenceEata(diverse_network).model
        lowest = {index: float(entropy(source(images), "none").min()) for index, images in enumerate(batches(8))}
    uncertain = max(lowest, key=lowest.get)
    threshold = 0.99 * lowest[uncertain] / math.log(4)
    settings = {"entropy_threshold": threshold, "similarity_threshold": 2.0}
    adapter = driftlaw.adapt(diverse_network, "eta", **settings)
    assert adapter.step(batches(8)[uncertain]).diagnostics["kept"] == 0
    reference = ReferenceEata(diverse_network, **settings)
    assert any(compare(adapter, reference, 8))


@pytest.mark.filterwarnings("ignore:The statistics of a single image")
def test_a_single_image_gives_finite_parameters(diverse_network):
    adapter = driftlaw.adapt(diverse_network, "eta", entropy_threshold=2.0, similarity_threshold=2.0)
    for images in batches(3):
        assert adapter.step(images[:1]).diagnostics["kept"] == 1
    assert all(value.isfinite().all() for value in adapter.model.parameters())


@pytest.mark.parametrize("fisher_weight", [1.0, 2000.0])
def test_eata_equals_the_reference(diverse_network, fisher_weight):
    data, settings = SyntheticDataset(), {"fisher_weight": fisher_weight}
    adapter = driftlaw.adapt(
        diverse_network, "eata", train_data=data, fisher_images=10, fisher_batch_size=5, source_seed=3, **settings
    )
    training = [images for images, _ in TrainData.of(data).batches(10, 5, 3, batches(1)[0])]
    reference = ReferenceEata(diverse_network, training, **settings)
    assert len(training) == 2
    assert all(compare(adapter, reference, 3))
    expected = torch.cat([value.flatten() for value in reference.fisher])
    torch.testing.assert_close(adapter.fisher, expected, rtol=1e-10, atol=1e-14)


def test_a_large_fisher_weight_keeps_parameters_near_the_source(diverse_network):
    distances = []
    for weight in (0.0, 1e3):
        adapter = driftlaw.adapt(
            diverse_network, "eata", train_data=SyntheticDataset(), fisher_weight=weight, optimizer="sgd"
        )
        for images in batches(3) * 3:
            adapter(images)
        change = torch.nn.utils.parameters_to_vector(adapter.trainable_parameters()) - adapter.source
        distances.append(float((adapter.fisher * change.detach().square()).sum()))
    assert distances[1] < 0.9 * distances[0]


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_rdumb_equals_the_reference_and_a_new_adapter_after_a_reset(diverse_network, optimizer):
    settings = {"optimizer": optimizer}
    adapter = driftlaw.adapt(diverse_network, "rdumb", reset_every=3, **settings)
    reference = ReferenceEata(diverse_network, reset_every=3, **settings)
    compare(adapter, reference, 8)
    adapter, new = (driftlaw.adapt(diverse_network, "rdumb", reset_every=3, **settings) for _ in range(2))
    images = batches(5)
    logits = [adapter(batch) for batch in images]
    for batch, expected in zip(images[3:], logits[3:], strict=True):
        assert torch.equal(new(batch), expected)
    assert adapter.steps == 5
