"""RMT against the version written by hand, in float64, and when it looks at the source."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

import driftlaw
from driftlaw.components.augment import AugmentParams, augment
from driftlaw.components.cache import cache_dir
from driftlaw.datasets import ArrayImages
from driftlaw.errors import UsageError
from driftlaw.profiling import count_flops
from tests.methods.images import TERMS, batches
from tests.reference.rmt import ReferenceRmt
from tests.reference.tolerance import assert_same_step, copy_parameters

SMALL = {"source_batch_size": 8, "warm_up_images": 24}

AFTER_WARM_UP = 1e-8  # relative error of the moments of the warm-up, whose weights differ by rounding


class CountedImages(ArrayImages):
    """Tells how many images it was asked for."""

    asked = 0

    def images(self, indices):
        self.asked += len(indices)
        return super().images(indices)


@pytest.fixture
def source() -> CountedImages:
    generator = np.random.default_rng(0)
    pixels = generator.integers(256, size=(40, 16, 16, 3), dtype=np.uint8)
    return CountedImages("made-up", pixels, np.arange(40) % 4, ["a", "b", "c", "d"], {"sha256": "f" * 64})


def picked(source: ArrayImages, numbers: torch.Tensor) -> tuple[torch.Tensor, list[int]]:
    pixels = torch.from_numpy(source.images(numbers.numpy())).double().permute(0, 3, 1, 2) / 255
    return pixels, source.labels[numbers.numpy()].tolist()


def in_order(source: ArrayImages, count: int) -> list[tuple[torch.Tensor, list[int]]]:
    order = torch.randperm(len(source), generator=torch.Generator().manual_seed(0))
    return [picked(source, numbers) for numbers in order[:count].split(8)]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"optimizer": "sgd", "learning_rate": 0.01},
        {"source_free": True},
        {"agreement_weight": 0.5, "contrast_weight": 2.0, "source_weight": 0.1, "temperature": 0.5},
        {"warm_up_images": 0, "teacher_momentum": 0.9},
    ],
    ids=str,
)
def test_warm_up_and_steps_equal_the_reference(network, source, settings):
    adapter = driftlaw.adapt(network, "rmt", seed=7, train_data=source, **SMALL | settings)
    reference = ReferenceRmt(network, adapter.projector, **{k: v for k, v in settings.items() if k != "warm_up_images"})
    reference.compute_prototypes(in_order(source, 40), 4)
    if not settings.get("source_free") and settings.get("warm_up_images") != 0:
        reference.warm_up([images for images, _ in in_order(source, 24)])
    generator = copy.deepcopy(adapter.generator).clone_state()  # the projector has been drawn from it already
    adapter.warm_up(batches(1)[0])
    torch.testing.assert_close(adapter.prototypes, torch.stack(reference.prototypes), rtol=0, atol=1e-12)
    pairs = [(adapter.model, reference.student), (adapter.teacher, reference.teacher)]
    for actual, expected in pairs:  # the warm-up has three steps, and each amplifies rounding errors
        for name, value in expected.named_parameters():
            torch.testing.assert_close(actual.get_parameter(name).data, value.data, rtol=0, atol=1e-7)
        copy_parameters(actual, expected)
    learning_rate = settings.get("learning_rate", 1e-3)
    for images in batches(3):
        augmented = augment(images, AugmentParams.from_generator(generator))
        replay = (None, None)
        if not settings.get("source_free"):
            replay = picked(source, torch.randint(len(source), (6,), generator=generator))
        logits = reference.step(images, augmented, *replay)
        torch.testing.assert_close(adapter(images), logits, rtol=0, atol=1e-12)
        for actual, expected in ((adapter.model, reference.student), (adapter.projector, reference.projector)):
            assert_same_step(
                actual, expected, reference.gradients, learning_rate, terms=TERMS, gradient_rtol=AFTER_WARM_UP
            )
        for name, value in reference.teacher.named_parameters():
            torch.testing.assert_close(adapter.teacher.get_parameter(name).data, value.data, rtol=0, atol=1e-7)
        copy_parameters(adapter.teacher, reference.teacher)


def test_the_constructor_does_not_read_the_training_data(network, source):
    driftlaw.adapt(network, "rmt", train_data=source)
    assert source.asked == 0
    assert not cache_dir().exists()


def test_prototypes_and_warm_up_are_made_once_for_all_seeds(network, source):
    first = driftlaw.adapt(network, "rmt", train_data=source, seed=1, **SMALL)
    first(batches(1)[0])
    assert source.asked == 40 + 24 + 6
    second = driftlaw.adapt(network, "rmt", train_data=source, seed=2, **SMALL)
    second(batches(1)[0])
    assert source.asked == 40 + 24 + 6 + 6
    assert sorted(path.name.rpartition("-")[0] for path in cache_dir().iterdir()) == [
        "rmt-prototypes",
        "rmt-warm-up",
    ]


def test_what_comes_from_disk_is_what_was_made(network, source):
    made, read = (driftlaw.adapt(network, "rmt", train_data=source, **SMALL) for _ in range(2))
    for adapter in (made, read):
        adapter.warm_up(batches(1)[0])
    for adapter in (made, read):
        for images in batches(2):
            adapter(images)
    for name, value in made.state_dict().items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(read.state_dict()[name], value)


@pytest.mark.parametrize(
    "changed", [{"learning_rate": 1e-2}, {"source_seed": 1}, {"warm_up_images": 16}, {"source_batch_size": 10}]
)
def test_another_setting_is_warmed_up_anew(network, source, changed):
    driftlaw.adapt(network, "rmt", train_data=source, **SMALL).warm_up(batches(1)[0])
    before = len(list(cache_dir().glob("rmt-warm-up-*")))
    driftlaw.adapt(network, "rmt", train_data=source, **SMALL | changed).warm_up(batches(1)[0])
    assert len(list(cache_dir().glob("rmt-warm-up-*"))) == before + 1


def test_another_source_or_network_is_looked_at_anew(network, source):
    driftlaw.adapt(network, "rmt", train_data=source, **SMALL).warm_up(batches(1)[0])
    other = ArrayImages("other", 255 - source.images(np.arange(40)), source.labels, source.class_names)
    driftlaw.adapt(network, "rmt", train_data=other, **SMALL).warm_up(batches(1)[0])
    with torch.no_grad():
        network.head.bias += 1
    driftlaw.adapt(network, "rmt", train_data=source, **SMALL).warm_up(batches(1)[0])
    assert len(list(cache_dir().glob("rmt-prototypes-*"))) == 3


def test_a_saved_state_is_warm_already(network, source):
    adapter = driftlaw.adapt(network, "rmt", train_data=source, **SMALL)
    adapter.warm_up(batches(1)[0])
    resumed = driftlaw.adapt(network, "rmt", train_data=source, **SMALL)
    resumed.load_state_dict(adapter.state_dict())
    for path in cache_dir().iterdir():
        path.unlink()
    images = batches(1)[0]
    assert torch.equal(resumed(images), adapter(images))
    assert list(cache_dir().iterdir()) == []


def test_after_a_reset_it_is_warmed_up_again_to_the_same_bits(network, source):
    adapter = driftlaw.adapt(network, "rmt", train_data=source, **SMALL)
    images = batches(1)[0]
    first = adapter(images)
    adapter.reset()
    assert not adapter.is_warm
    assert torch.equal(adapter(images), first)


def test_without_replay_and_warm_up_only_prototypes_are_taken(network, source):
    adapter = driftlaw.adapt(network, "rmt", train_data=source, source_free=True, source_batch_size=8)
    for images in batches(2):
        adapter(images)
    assert source.asked == 40
    assert [path.name.rpartition("-")[0] for path in cache_dir().iterdir()] == ["rmt-prototypes"]


def test_the_answer_is_from_before_the_step_and_that_of_student_and_teacher(network, source):
    adapter = driftlaw.adapt(network, "rmt", train_data=source, **SMALL)
    (images,) = batches(1)
    adapter.warm_up(images)
    before = adapter.predict(images)
    torch.testing.assert_close(before, adapter.model(images) + adapter.teacher(images))
    torch.testing.assert_close(adapter(images), before, rtol=0, atol=1e-12)


def test_the_projector_is_drawn_from_the_seed(network, source):
    one, same, other = (driftlaw.adapt(network, "rmt", train_data=source, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one.projector[0].weight, same.projector[0].weight)
    assert not torch.equal(one.projector[0].weight, other.projector[0].weight)


def test_a_model_without_a_linear_head_is_refused(source):
    with pytest.raises(UsageError, match="no linear layer"):
        driftlaw.adapt(nn.Conv2d(3, 2, 1), "rmt", train_data=source)


def test_the_counted_cost_is_what_it_declares(network, source):
    adapter = driftlaw.adapt(network, "rmt", train_data=source, **SMALL)
    (images,) = batches(1)
    adapter.warm_up(images)
    _, forward = count_flops(lambda: adapter.model(images))
    _, step = count_flops(lambda: adapter.step(images))
    assert step / forward == pytest.approx(adapter.forward_cost + adapter.backward_cost, rel=0.1)
    assert (adapter.forward_cost, adapter.backward_cost) == (4, 6)
