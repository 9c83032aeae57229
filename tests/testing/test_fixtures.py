"""Fixtures of the conformance checks are deterministic."""

import math

import pytest
import torch

from driftlaw.components.parameters import select_parameters
from driftlaw.testing.fixtures import (
    CLASSES,
    SyntheticDataset,
    TinyStream,
    make_images,
    model_without_norm_layers,
    tiny_model,
)
from driftlaw.testing.snapshots import differences, state_of


def test_models_and_images_are_deterministic_and_leave_the_global_rng_alone():
    before = torch.get_rng_state()
    for make in (tiny_model, model_without_norm_layers):
        assert differences(state_of(make()), state_of(make())) == []
    assert torch.equal(make_images(3), make_images(3))
    assert not torch.equal(make_images(3), make_images(4))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("mode", [True, False], ids=["batch statistics", "running statistics"])
@torch.no_grad()
def test_every_batch_has_confident_and_uncertain_predictions(mode):
    model = tiny_model().train(mode)
    for index in range(5):
        entropies = torch.distributions.Categorical(logits=model(make_images(index))).entropy()
        assert 0 < int((entropies < 0.4 * math.log(CLASSES)).sum()) < len(entropies)


def test_model_without_norm_layers_has_none():
    assert not select_parameters(model_without_norm_layers(), ["norm"])
    assert model_without_norm_layers()(make_images()).shape == (8, 4)


def test_float64_images_round_to_the_float32_images():
    assert torch.equal(make_images(dtype=torch.float64).float(), make_images())


def test_stream_numbers_its_batches_and_marks_domains():
    batches = list(TinyStream())
    assert [batch.index for batch in batches] == list(range(len(TinyStream())))
    assert [batch.starts_domain for batch in batches] == [True, False, True]


def test_synthetic_dataset_implements_the_dataset_protocol():
    dataset = SyntheticDataset()
    assert dataset.images([1, 2]).shape == (2, *dataset.image_shape, 3)
    assert set(dataset.labels.tolist()) == set(range(dataset.num_classes))
    assert dataset.metadata()["count"] == len(dataset)
