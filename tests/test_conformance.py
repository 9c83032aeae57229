"""Conformance tests of every listed method, stream schedule and corruption; new ones are included automatically."""

from collections import Counter
from itertools import islice
from typing import get_args

import numpy as np
import pytest
import torch

from driftlaw.corruptions import corrupt, list_corruptions
from driftlaw.datasets import ArrayImages
from driftlaw.methods import list_methods
from driftlaw.streams import CorruptedStream, StreamSettings
from driftlaw.streams.image_cache import CorruptedImageCache
from driftlaw.testing import CHECKS, find_method

# --- methods -------------------------------------------------------------------------------------------------------

OTHER_SETTINGS = [
    ("tent", {"optimizer": "sgd"}),
    ("tent", {"guard": True}),
    ("law", {"guard": True}),
    ("law", {"fisher": "per_sample"}),
    ("law", {"moments": "kept", "grouping": "block"}),
    ("law", {"fisher_every": 2, "fisher_settling": 1, "skip_share": 0.8, "augment_every": 2, "recompute": True}),
    ("law", {"compat": "released_2024", "reduction": "trace"}),
    ("law", {"statistics": "window", "window": 10, "layers": ["conv", "norm", "linear", "head"]}),
    ("law_plus", {"fisher_every": 2, "fisher_settling": 1, "adapted_share": 1.0}),
    ("tent", {"statistics": "window", "window": 10, "minimum_batch": 3}),
    ("norm", {"statistics": "mixed", "source_share": 0.3}),
    ("cotta", {"optimizer": "sgd", "symmetric": True, "augmentations": 2}),
    ("rmt", {"source_free": True, "optimizer": "sgd"}),
    ("gtta", {"first_confidence": 0.0}),
    ("adacontrast", {"memory_size": 16, "own_label_images": 8}),
    ("eata", {"optimizer": "sgd", "fisher_weight": 2000.0, "fisher_images": 8, "fisher_batch_size": 4}),
    ("rdumb", {"reset_every": 2}),
    ("cmf", {"optimizer": "sgd", "process_noise": 1.0}),
    ("roid", {"optimizer": "sgd", "consistency": False}),
    ("palm", {"gradient_threshold": 0.01, "sensitivity_momentum": 0.1, "weight_decay": 5e-4}),
    ("sar", {"radius": 0.5, "reset_threshold": 0.1}),
    ("deyo", {"optimizer": "sgd", "plpd_threshold": -1.0}),
    ("rotta", {"memory_size": 6, "update_every": 5}),
    ("surgical", {"tuned": "all", "part": "from", "optimizer": "sgd"}),
]
FASTER = {"cotta": {"augmentations": 2}}
"""Settings that only save time, by method."""

STATE_CHECKS = [
    check for check in CHECKS if check.__name__ in ("reset_restores_initial_state", "save_and_load_continue_exactly")
]


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("method", list_methods())
def test_method_conforms(method, check):
    check(method, FASTER.get(method))


@pytest.mark.parametrize("check", STATE_CHECKS)
@pytest.mark.parametrize(("method", "settings"), OTHER_SETTINGS, ids=str)
def test_state_is_complete_with_other_settings(method, settings, check):
    check(method, settings)


DENSE_SETTINGS = [
    (method, {"dense_augmentation": "geometric"} | ({"augmentations": 2} if method == "cotta" else {}))
    for method in ("law", "law_plus", "cotta", "roid", "palm")
]


@pytest.mark.parametrize("method", [name for name in list_methods() if not find_method(name).classification_only])
def test_method_conforms_with_logits_per_pixel(method):
    settings = {"augmentations": 2} if method == "cotta" else None
    for check in CHECKS:
        if check.__name__ != "run_is_reproducible":  # its stream has one label per image
            check(method, settings, dense=True)


@pytest.mark.parametrize(("method", "settings"), DENSE_SETTINGS, ids=str)
def test_state_is_complete_with_logits_per_pixel(method, settings):
    for check in STATE_CHECKS:
        check(method, settings, dense=True)


# --- streams -------------------------------------------------------------------------------------------------------

COUNT, BATCH_SIZE, CLASSES = 22, 8, 4
NAMES = ("clean", "contrast", "gaussian_noise")
SCHEDULES = get_args(StreamSettings.model_fields["schedule"].annotation)
ORDERS = get_args(StreamSettings.model_fields["order"].annotation)


@pytest.fixture(scope="module")
def dataset():
    generator = np.random.default_rng(0)
    images = generator.integers(256, size=(COUNT, 32, 32, 3), dtype=np.uint8)
    return ArrayImages(
        "synthetic", images, generator.integers(CLASSES, size=COUNT), [f"class {n}" for n in range(CLASSES)]
    )


@pytest.fixture(params=SCHEDULES)
def schedule(request):
    return request.param


@pytest.fixture(params=ORDERS)
def stream(request, schedule, dataset):
    settings = StreamSettings(
        schedule=schedule,
        corruptions=NAMES[1:2] if schedule == "single" else NAMES,
        order=request.param,
        batch_size=BATCH_SIZE,
        rounds=2,
        severity=3,
    )
    return CorruptedStream(settings, CorruptedImageCache(dataset, None, settings.corruption_seed, "cpu"))


def batch_sizes_by_segment(batches):
    sizes = []
    for batch in batches:
        if batch.starts_domain:
            sizes.append([])
        sizes[-1].append(len(batch.images))
    return sizes


def assert_equal_batches(one, other):
    assert len(one) == len(other)
    for left, right in zip(one, other, strict=True):
        assert torch.equal(left.images, right.images)
        assert torch.equal(left.labels, right.labels)
        assert (left.domain, left.index, left.starts_domain) == (right.domain, right.index, right.starts_domain)


def test_iterating_twice_gives_identical_batches(stream):
    first = list(stream)
    torch.manual_seed(1)
    np.random.seed(1)
    assert_equal_batches(first, list(stream))


def test_length_is_the_index_of_batches(stream):
    assert [batch.index for batch in stream] == list(range(len(stream)))


def test_images_are_floats_in_0_to_1(stream):
    for batch in islice(stream, 4):
        assert batch.images.dtype == torch.float32
        assert batch.images.shape[1:] == (3, 32, 32)
        assert 0 <= batch.images.min() <= batch.images.max() <= 1


def test_last_smaller_batch_is_kept(stream, schedule):
    segments = batch_sizes_by_segment(stream)
    if schedule == "mixed":
        assert segments == [[BATCH_SIZE] * 16 + [4]]  # two rounds
    else:
        assert segments == [[BATCH_SIZE, BATCH_SIZE, 6]] * (len(stream) // 3)


def test_iter_from_equals_skipping(stream):
    batches = list(stream)
    for first in (0, 1, 3, 4, len(batches) - 1, len(batches)):
        assert_equal_batches(batches[first:], list(stream.iter_from(first)))


def test_every_image_occurs_once_per_domain_with_its_label(stream, dataset, schedule):
    index_of = {}
    clean = torch.from_numpy(dataset.images(np.arange(COUNT))).permute(0, 3, 1, 2)
    for name in NAMES:
        for severity in (1, 2, 3, 4, 5) if schedule == "gradual" else (3,):
            corrupted = clean if name == "clean" else corrupt(clean, name, severity)
            for index, image in enumerate(corrupted):
                index_of[image.float().div(255).numpy().tobytes()] = (name, index)
    seen = []
    for batch in stream:
        for image, label in zip(batch.images, batch.labels.tolist(), strict=True):
            name, index = index_of[image.numpy().tobytes()]
            assert label == dataset.labels[index]
            assert batch.domain.name in (name, "mixed")
            seen.append((name, index))
    times = {"gradual": 9, "recurring": 2, "mixed": 2}.get(schedule, 1)
    assert Counter(seen) == {(name, index): times for name in stream.settings.corruptions for index in range(COUNT)}


def test_order_is_the_same_in_every_domain(stream, schedule):
    if schedule == "mixed":
        assert len(batch_sizes_by_segment(stream)) == 1
        return
    labels = torch.cat([batch.labels for batch in stream]).view(-1, COUNT)
    assert (labels == labels[0]).all()


def test_recipe_contains_every_setting(stream):
    recipe = stream.recipe()
    unset = {"encoding", "sequences", "size"}  # of large images, and of videos
    assert set(StreamSettings.model_fields) - unset <= set(recipe)
    assert recipe["images_per_domain"] == COUNT


# --- corruptions ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pixels():
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(3, 3, 8, 8, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, size=32, mode="bilinear").clamp(0, 1)
    return (smooth * 255).round().to(torch.uint8)


@pytest.mark.parametrize("name", list_corruptions("all"))
class TestCorruption:
    """Requirements for every corruption."""

    def test_shape_dtype_and_range_are_preserved(self, name, pixels):
        for severity in range(1, 6):
            for images in (pixels, pixels.float() / 255, pixels.double() / 255):
                result = corrupt(images, name, severity)
                assert result.shape == images.shape
                assert result.dtype == images.dtype
                if images.is_floating_point():
                    assert 0 <= result.min() <= result.max() <= 1

    def test_returns_changed_images_and_leaves_the_input_unchanged(self, name, pixels):
        before = pixels.clone()
        assert not torch.equal(corrupt(pixels, name, 5), before)
        assert torch.equal(pixels, before)

    def test_seed_determines_result(self, name, pixels):
        torch.manual_seed(1)
        np.random.seed(1)
        first = corrupt(pixels, name, 3, seed=7)
        torch.manual_seed(2)
        np.random.seed(2)
        before = torch.get_rng_state()
        assert torch.equal(corrupt(pixels, name, 3, seed=7), first)
        assert torch.equal(torch.get_rng_state(), before)

    def test_result_does_not_depend_on_the_batch(self, name, pixels):
        together = corrupt(pixels, name, 4, indices=[10, 11, 12])
        alone = corrupt(pixels[[2, 0]], name, 4, indices=[12, 10])
        assert torch.equal(alone, together[[2, 0]])
