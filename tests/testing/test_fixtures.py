"""What checks work on is the same every time."""

import torch

from driftlaw.components.parameters import select_parameters
from driftlaw.testing.fixtures import SyntheticDataset, TinyStream, make_images, model_without_norm_layers, tiny_model
from driftlaw.testing.snapshots import differences, network_of


def test_networks_and_images_are_the_same_every_time_and_draw_nothing():
    before = torch.get_rng_state()
    for make in (tiny_model, model_without_norm_layers):
        assert differences(network_of(make()), network_of(make())) == []
    assert torch.equal(make_images(3), make_images(3))
    assert not torch.equal(make_images(3), make_images(4))
    assert torch.equal(before, torch.get_rng_state())


def test_the_network_without_norm_layers_has_none():
    assert not select_parameters(model_without_norm_layers(), ["norm"])
    assert model_without_norm_layers()(make_images()).shape == (8, 4)


def test_images_of_float64_are_those_of_float32_in_full():
    assert torch.equal(make_images(dtype=torch.float64).float(), make_images())


def test_the_stream_keeps_the_contract():
    batches = list(TinyStream())
    assert [batch.index for batch in batches] == list(range(len(TinyStream())))
    assert [batch.starts_domain for batch in batches] == [True, False, True]


def test_the_made_up_source_has_the_face_of_a_dataset():
    source = SyntheticDataset()
    assert source.images([1, 2]).shape == (2, *source.image_shape, 3)
    assert set(source.labels.tolist()) == set(range(source.num_classes))
    assert source.facts()["count"] == len(source)
