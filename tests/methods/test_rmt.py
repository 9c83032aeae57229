"""RMT against its reference implementation, in float64, and its use of the training data."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

import driftlaw
from driftlaw.components.augment import AugmentParams, augment
from driftlaw.datasets import ArrayImages
from driftlaw.errors import UsageError
from driftlaw.profiling import count_flops
from driftlaw.torch_files import cache_dir
from tests.methods.images import TERMS, batches
from tests.reference.rmt import ReferenceRmt
from tests.reference.tolerance import assert_same_step, copy_parameters

SMALL = {"source_batch_size": 8, "warm_up_images": 24}

AFTER_WARM_UP = 1e-8  # relative error of the moments of the warm-up, whose weights differ by rounding


class CountedImages(ArrayImages):
    """Counts the images that were read."""

    images_read = 0

    def images(self, indices):
        self.images_read += len(indices)
        return super().images(indices)


@pytest.fixture
def train_data() -> CountedImages:
    generator = np.random.default_rng(0)
    pixels = generator.integers(256, size=(40, 16, 16, 3), dtype=np.uint8)
    return CountedImages("synthetic", pixels, np.arange(40) % 4, ["a", "b", "c", "d"], {"sha256": "f" * 64})


def picked(train_data: ArrayImages, numbers: torch.Tensor) -> tuple[torch.Tensor, list[int]]:
    pixels = torch.from_numpy(train_data.images(numbers.numpy())).double().permute(0, 3, 1, 2) / 255
    return pixels, train_data.labels[numbers.numpy()].tolist()


def in_order(train_data: ArrayImages, count: int) -> list[tuple[torch.Tensor, list[int]]]:
    order = torch.randperm(len(train_data), generator=torch.Generator().manual_seed(0))
    return [picked(train_data, numbers) for numbers in order[:count].split(8)]


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
def test_warm_up_and_steps_equal_the_reference(network, train_data, settings):
    adapter = driftlaw.adapt(network, "rmt", seed=7, train_data=train_data, **SMALL | settings)
    reference = ReferenceRmt(network, adapter.projector, **{k: v for k, v in settings.items() if k != "warm_up_images"})
    reference.compute_prototypes(in_order(train_data, 40), 4)
    if not settings.get("source_free") and settings.get("warm_up_images") != 0:
        reference.warm_up([images for images, _ in in_order(train_data, 24)])
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
            replay = picked(train_data, torch.randint(len(train_data), (6,), generator=generator))
        logits = reference.step(images, augmented, *replay)
        torch.testing.assert_close(adapter(images), logits, rtol=0, atol=1e-12)
        for actual, expected in ((adapter.model, reference.student), (adapter.projector, reference.projector)):
            assert_same_step(
                actual, expected, reference.gradients, learning_rate, terms=TERMS, gradient_rtol=AFTER_WARM_UP
            )
        for name, value in reference.teacher.named_parameters():
            torch.testing.assert_close(adapter.teacher.get_parameter(name).data, value.data, rtol=0, atol=1e-7)
        copy_parameters(adapter.teacher, reference.teacher)


def test_the_constructor_does_not_read_the_training_data(network, train_data):
    driftlaw.adapt(network, "rmt", train_data=train_data)
    assert train_data.images_read == 0
    assert not cache_dir().exists()


def test_prototypes_and_warm_up_are_cached_for_all_seeds(network, train_data):
    first = driftlaw.adapt(network, "rmt", train_data=train_data, seed=1, **SMALL)
    first(batches(1)[0])
    assert train_data.images_read == 40 + 24 + 6
    second = driftlaw.adapt(network, "rmt", train_data=train_data, seed=2, **SMALL)
    second(batches(1)[0])
    assert train_data.images_read == 40 + 24 + 6 + 6
    assert sorted(path.name.rpartition("-")[0] for path in cache_dir().iterdir()) == [
        "rmt-prototypes",
        "rmt-warm-up",
    ]


def test_cached_results_equal_computed_ones(network, train_data):
    made, read = (driftlaw.adapt(network, "rmt", train_data=train_data, **SMALL) for _ in range(2))
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
def test_another_setting_is_cached_separately(network, train_data, changed):
    driftlaw.adapt(network, "rmt", train_data=train_data, **SMALL).warm_up(batches(1)[0])
    before = len(list(cache_dir().glob("rmt-warm-up-*")))
    driftlaw.adapt(network, "rmt", train_data=train_data, **SMALL | changed).warm_up(batches(1)[0])
    assert len(list(cache_dir().glob("rmt-warm-up-*"))) == before + 1


def test_other_training_data_and_models_are_cached_separately(network, train_data):
    driftlaw.adapt(network, "rmt", train_data=train_data, **SMALL).warm_up(batches(1)[0])
    other = ArrayImages("other", 255 - train_data.images(np.arange(40)), train_data.labels, train_data.class_names)
    driftlaw.adapt(network, "rmt", train_data=other, **SMALL).warm_up(batches(1)[0])
    with torch.no_grad():
        network.head.bias += 1
    driftlaw.adapt(network, "rmt", train_data=train_data, **SMALL).warm_up(batches(1)[0])
    assert len(list(cache_dir().glob("rmt-prototypes-*"))) == 3


def test_a_loaded_state_needs_no_warm_up(network, train_data):
    adapter = driftlaw.adapt(network, "rmt", train_data=train_data, **SMALL)
    adapter.warm_up(batches(1)[0])
    resumed = driftlaw.adapt(network, "rmt", train_data=train_data, **SMALL)
    resumed.load_state_dict(adapter.state_dict())
    for path in cache_dir().iterdir():
        path.unlink()
    images = batches(1)[0]
    assert torch.equal(resumed(images), adapter(images))
    assert list(cache_dir().iterdir()) == []


def test_after_a_reset_the_warm_up_gives_the_same_bits(network, train_data):
    adapter = driftlaw.adapt(network, "rmt", train_data=train_data, **SMALL)
    images = batches(1)[0]
    first = adapter(images)
    adapter.reset()
    assert not adapter.is_warm
    assert torch.equal(adapter(images), first)


def test_source_free_reads_training_data_for_prototypes_only(network, train_data):
    adapter = driftlaw.adapt(network, "rmt", train_data=train_data, source_free=True, source_batch_size=8)
    for images in batches(2):
        adapter(images)
    assert train_data.images_read == 40
    assert [path.name.rpartition("-")[0] for path in cache_dir().iterdir()] == ["rmt-prototypes"]


def test_logits_are_the_sum_of_student_and_teacher_before_the_update(network, train_data):
    adapter = driftlaw.adapt(network, "rmt", train_data=train_data, **SMALL)
    (images,) = batches(1)
    adapter.warm_up(images)
    before = adapter.predict(images)
    torch.testing.assert_close(before, adapter.model(images) + adapter.teacher(images))
    torch.testing.assert_close(adapter(images), before, rtol=0, atol=1e-12)


def test_the_projector_depends_on_the_seed(network, train_data):
    one, same, other = (driftlaw.adapt(network, "rmt", train_data=train_data, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one.projector[0].weight, same.projector[0].weight)
    assert not torch.equal(one.projector[0].weight, other.projector[0].weight)


def test_a_model_without_a_linear_head_is_refused(train_data):
    with pytest.raises(UsageError, match="no linear layer"):
        driftlaw.adapt(nn.Conv2d(3, 4, 1), "rmt", train_data=train_data)


def test_the_counted_cost_equals_the_declared_one(network, train_data):
    adapter = driftlaw.adapt(network, "rmt", train_data=train_data, **SMALL)
    (images,) = batches(1)
    adapter.warm_up(images)
    _, forward = count_flops(lambda: adapter.model(images))
    _, step = count_flops(lambda: adapter.step(images))
    assert step / forward == pytest.approx(adapter.forward_cost + adapter.backward_cost, rel=0.1)
    assert (adapter.forward_cost, adapter.backward_cost) == (4, 6)
