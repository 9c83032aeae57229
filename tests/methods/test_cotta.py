"""CoTTA against the version written by hand, in float64, and what its parts do."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import driftlaw
from driftlaw.components.augment import AugmentParams, augment
from driftlaw.profiling import count_flops
from tests.methods.images import batches
from tests.reference.cotta import ReferenceCotta

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
def test_three_steps_equal_the_hand_written_ones(network, settings):
    assert compare_with_hand(network, batches(3), settings) == [True, True, True]


def test_on_batches_the_anchor_is_sure_of_too(network):
    """The least sure batch comes first: teacher and student must differ before a plain answer teaches anything."""
    by_hand = ReferenceCotta(network)
    with torch.no_grad():
        sure_of = {by_hand.anchor(images).softmax(1).amax(1).mean().item(): images for images in batches(3)}
    least, next_one, most = sorted(sure_of)
    settings = {"confidence_threshold": (least + next_one) / 2}
    given = [sure_of[value] for value in (least, next_one, most)]
    assert compare_with_hand(network, given, settings) == [True, False, False]


def compare_with_hand(network, given, settings) -> list[bool]:
    """Take the same steps with both, and tell of each whether the teacher averaged."""
    adapter = driftlaw.adapt(network, "cotta", seed=7, augmentations=COPIES, **settings)
    by_hand = ReferenceCotta(network, **{k: v for k, v in settings.items() if k != "restore_probability"})
    generator = torch.Generator().manual_seed(7)
    averaged = []
    for images in given:
        sure = by_hand.anchor(images).softmax(1).amax(1).mean().item()
        averaged.append(sure < settings.get("confidence_threshold", 0.92))
        copies = [
            augment(images, AugmentParams.from_generator(generator)) for _ in range(COPIES if averaged[-1] else 0)
        ]
        seed = int(torch.randint(2**62, (), generator=generator))
        masks = drawn_masks(network, seed, settings.get("restore_probability", 0.01))
        torch.testing.assert_close(adapter(images), by_hand.step(images, copies, masks), rtol=0, atol=1e-10)
    for own, hand in ((adapter.model, by_hand.student), (adapter.teacher, by_hand.teacher)):
        for name, value in hand.named_parameters():
            torch.testing.assert_close(own.get_parameter(name).data, value.data, rtol=0, atol=1e-10)
    return averaged


def test_the_anchor_never_moves_and_everything_else_does(network):
    adapter = driftlaw.adapt(network, "cotta", augmentations=1)
    adapter(batches(1)[0])
    for name, value in network.named_parameters():
        assert torch.equal(adapter.anchor.get_parameter(name), value)
        assert not torch.equal(adapter.model.get_parameter(name), value)
        assert not torch.equal(adapter.teacher.get_parameter(name), value)


def test_a_certain_restore_takes_the_student_back_to_the_source(network):
    adapter = driftlaw.adapt(network, "cotta", augmentations=1, restore_probability=1.0)
    adapter(batches(1)[0])
    assert all(torch.equal(adapter.model.get_parameter(name), value) for name, value in network.named_parameters())


def test_the_answer_is_the_teachers_from_before_the_step(network):
    adapter = driftlaw.adapt(network, "cotta", confidence_threshold=0.0)
    (images,) = batches(1)
    before = adapter.predict(images)
    assert torch.equal(adapter(images), before)
    assert not torch.equal(adapter.predict(images), before)


def test_it_tells_how_sure_the_anchor_is(network):
    adapter = driftlaw.adapt(network, "cotta", augmentations=1)
    (images,) = batches(1)
    with torch.no_grad():
        sure = adapter.anchor(images).softmax(1).amax(1).mean()
    assert adapter.step(images).diagnostics["anchor_confidence"] == pytest.approx(float(sure))


def test_the_counted_cost_is_what_it_declares(network):
    adapter = driftlaw.adapt(network, "cotta")
    (images,) = batches(1)
    _, forward = count_flops(lambda: adapter.model(images))
    _, step = count_flops(lambda: adapter.step(images))
    assert step / forward == pytest.approx(adapter.forward_cost + adapter.backward_cost, rel=0.1)
    assert (adapter.forward_cost, adapter.backward_cost) == (34, 2)
