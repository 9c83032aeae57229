"""RoTTA against its reference implementation, in float64: memory, statistics, updates inside a batch."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import driftlaw
from driftlaw.components.augment import AugmentParams, augment
from driftlaw.profiling import count_flops
from tests.methods.images import TERMS, batches
from tests.reference.rotta import ReferenceRotta, RobustNorm
from tests.reference.tolerance import assert_same_step

SMALL = {"memory_size": 8, "update_every": 8}


@pytest.fixture
def confident_network(confident_network) -> nn.Module:
    """With statistics of images like those of the tests, so that several classes are predicted."""
    for layer in norm_layers(confident_network.train()):
        layer.momentum = 1.0
    with torch.no_grad():
        confident_network(torch.cat(batches(2)))
    return confident_network.eval()


def norm_layers(model: nn.Module) -> list[nn.Module]:
    return [module for module in model.modules() if isinstance(module, nn.BatchNorm2d | RobustNorm)]


def assert_same_statistics(actual: nn.Module, expected: nn.Module) -> None:
    for ours, theirs in zip(norm_layers(actual), norm_layers(expected), strict=True):
        torch.testing.assert_close(ours.running_mean, theirs.mean, rtol=0, atol=1e-10)
        torch.testing.assert_close(ours.running_var, theirs.variance, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    "settings",
    [
        SMALL,
        {"memory_size": 10, "update_every": 7, "learning_rate": 0.01, "teacher_momentum": 0.9},
        {"memory_size": 3, "update_every": 11, "statistics_rate": 0.3},
    ],
    ids=str,
)
def test_steps_equal_the_reference(confident_network, settings):
    adapter = driftlaw.adapt(confident_network, "rotta", seed=7, **settings)
    reference = ReferenceRotta(confident_network, 4, **settings)
    generator = torch.Generator().manual_seed(7)
    updates = 0
    for images in batches(6):
        output = adapter.step(images)
        logits = reference.step(images, lambda memory: augment(memory, AugmentParams.from_generator(generator)))
        torch.testing.assert_close(output.logits, logits, rtol=0, atol=1e-10)
        updates += output.diagnostics["updates"]
        assert output.diagnostics["memory"] == sum(len(items) for items in reference.classes)
        stored = sorted(zip(adapter.memory.labels.tolist(), adapter.memory.ages.tolist(), strict=True))
        expected = [(label, item.age) for label, items in enumerate(reference.classes) for item in items]
        assert [pair for pair in stored if pair[0] >= 0] == sorted(expected)
        rate = settings.get("learning_rate", 1e-3)
        assert_same_step(adapter.model, reference.student, reference.gradients, rate, terms=TERMS)
        share = rate * (1 - settings.get("teacher_momentum", 0.999))
        gradients = {
            reference.teacher.get_parameter(name): reference.gradients[value]
            for name, value in reference.student.named_parameters()
            if value in reference.gradients
        }
        assert_same_step(adapter.teacher, reference.teacher, gradients, share, terms=TERMS)
        assert_same_statistics(adapter.model, reference.student)
        assert_same_statistics(adapter.teacher, reference.teacher)
    assert updates == 36 // settings["update_every"]


def test_a_batch_may_contain_several_updates_and_its_logits_are_from_before_them(confident_network):
    adapter = driftlaw.adapt(confident_network, "rotta", memory_size=4, update_every=2)
    (images,) = batches(1)
    expected = adapter.predict(images)
    output = adapter.step(images)
    assert output.diagnostics["updates"] == 3
    assert torch.equal(output.logits, expected)
    assert not torch.equal(adapter.predict(images), expected)


def test_single_images_give_the_predictions_of_a_batch(confident_network):
    (images,) = batches(1)
    together = driftlaw.adapt(confident_network, "rotta")(images)
    adapter = driftlaw.adapt(confident_network, "rotta")
    alone = torch.cat([adapter(image[None]) for image in images])
    torch.testing.assert_close(alone, together, rtol=0, atol=1e-12)
    assert adapter.memory.labels.max() >= 0


def test_memory_and_counter_are_saved_and_reset(confident_network):
    adapter = driftlaw.adapt(confident_network, "rotta", **SMALL)
    first, second, third = batches(3)
    adapter(first)
    loaded = driftlaw.adapt(confident_network, "rotta", **SMALL)
    loaded.load_state_dict(adapter.state_dict())
    for images in (second, third):
        assert torch.equal(adapter(images), loaded(images))
    adapter.reset()
    fresh = driftlaw.adapt(confident_network, "rotta", **SMALL)
    for images in batches(3):
        assert torch.equal(adapter(images), fresh(images))


def test_images_of_another_size_empty_the_memory(confident_network):
    adapter = driftlaw.adapt(confident_network, "rotta", **SMALL)
    adapter(batches(1)[0])
    smaller = batches(1)[0][:3, :, :12, :12]
    output = adapter.step(smaller)
    assert adapter.memory.images.shape == (8, 3, 12, 12)
    assert 0 < output.diagnostics["memory"] <= 3


def test_the_counted_cost_is_what_it_declares(network):
    adapter = driftlaw.adapt(network, "rotta", memory_size=6, update_every=6)
    (images,) = batches(1)
    _, forward = count_flops(lambda: adapter.predict(images))
    output, step = count_flops(lambda: adapter.step(images))
    assert output.diagnostics["updates"] == 1
    share = output.diagnostics["memory"] / len(images)
    declared = adapter.forward_cost + adapter.backward_cost  # with a memory as large as the images between updates
    assert step / forward == pytest.approx(1 + share * (declared - 1), rel=0.1)
