"""CoTTA against its reference implementation, in float64, and its parts."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import driftlaw
from driftlaw.components.augment import AugmentParams, augment
from driftlaw.profiling import count_flops
from tests.methods.images import TERMS, batches
from tests.reference.cotta import ReferenceCotta
from tests.reference.tolerance import assert_same_step

COPIES = 3


def drawn_masks(model: nn.Module, seed: int, probability: float) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.rand(value.shape, generator=generator) < probability for name, value in model.named_parameters()
    }


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"symmetric": True},
        {"optimizer": "sgd", "learning_rate": 0.01, "symmetric": True},
        {"teacher_momentum": 0.9, "restore_probability": 0.5},
    ],
    ids=str,
)
def test_steps_equal_the_reference(network, settings):
    assert compare_with_reference(network, batches(3), settings) == [True, True, True]


def test_steps_on_confident_batches_equal_the_reference(network):
    """The least confident batch comes first: then teacher and student differ before the plain predictions."""
    reference = ReferenceCotta(network)
    with torch.no_grad():
        by_confidence = {reference.anchor(images).softmax(1).amax(1).mean().item(): images for images in batches(3)}
    least, middle, most = sorted(by_confidence)
    settings = {"confidence_threshold": (least + middle) / 2}
    ordered = [by_confidence[value] for value in (least, middle, most)]
    assert compare_with_reference(network, ordered, settings) == [True, False, False]


def compare_with_reference(network, images_of_steps, settings) -> list[bool]:
    """Take the same steps with both, and return for each whether the teacher averaged over augmentations."""
    adapter = driftlaw.adapt(network, "cotta", seed=7, augmentations=COPIES, **settings)
    reference = ReferenceCotta(network, **{k: v for k, v in settings.items() if k != "restore_probability"})
    generator = torch.Generator().manual_seed(7)
    learning_rate = settings.get("learning_rate", 1e-3)
    averaged = []
    for images in images_of_steps:
        confidence = reference.anchor(images).softmax(1).amax(1).mean().item()
        averaged.append(confidence < settings.get("confidence_threshold", 0.92))
        copies = [
            augment(images, AugmentParams.from_generator(generator)) for _ in range(COPIES if averaged[-1] else 0)
        ]
        seed = int(torch.randint(2**62, (), generator=generator))
        masks = drawn_masks(network, seed, settings.get("restore_probability", 0.01))
        torch.testing.assert_close(adapter(images), reference.step(images, copies, masks), rtol=0, atol=1e-12)
        assert_same_step(adapter.model, reference.student, reference.gradients, learning_rate, terms=TERMS)
        share = 1 - settings.get("teacher_momentum", 0.999)  # the teacher gets this share of the student's difference
        teachers = (adapter.teacher, reference.teacher)
        assert_same_step(*teachers, teacher_gradients(reference), share * learning_rate, terms=TERMS)
    return averaged


def teacher_gradients(reference: ReferenceCotta) -> dict[nn.Parameter, list[torch.Tensor]]:
    """Return the student's gradients under the parameters of the teacher."""
    return {
        reference.teacher.get_parameter(name): reference.gradients[value]
        for name, value in reference.student.named_parameters()
    }


def test_the_anchor_is_frozen_and_student_and_teacher_are_not(network):
    adapter = driftlaw.adapt(network, "cotta", augmentations=1)
    adapter(batches(1)[0])
    for name, value in network.named_parameters():
        assert torch.equal(adapter.anchor.get_parameter(name), value)
        assert not torch.equal(adapter.model.get_parameter(name), value)
        assert not torch.equal(adapter.teacher.get_parameter(name), value)


def test_a_restore_probability_of_one_restores_the_source_model(network):
    adapter = driftlaw.adapt(network, "cotta", augmentations=1, restore_probability=1.0)
    adapter(batches(1)[0])
    assert all(torch.equal(adapter.model.get_parameter(name), value) for name, value in network.named_parameters())


def test_the_anchors_confidence_is_a_diagnostic(network):
    adapter = driftlaw.adapt(network, "cotta", augmentations=1)
    (images,) = batches(1)
    with torch.no_grad():
        confidence = adapter.anchor(images).softmax(1).amax(1).mean()
    assert adapter.step(images).diagnostics["anchor_confidence"] == pytest.approx(float(confidence))


def test_the_counted_cost_equals_the_declared_one(network):
    adapter = driftlaw.adapt(network, "cotta")
    (images,) = batches(1)
    _, forward = count_flops(lambda: adapter.model(images))
    _, step = count_flops(lambda: adapter.step(images))
    assert step / forward == pytest.approx(adapter.forward_cost + adapter.backward_cost, rel=0.1)
    assert (adapter.forward_cost, adapter.backward_cost) == (34, 2)
