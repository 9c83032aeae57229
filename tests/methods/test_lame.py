"""LAME against its reference implementation, in float64, and batches without a scale of distances."""

from __future__ import annotations

import pytest
import torch

import driftlaw
from driftlaw.components.features import logits_and_features
from driftlaw.methods.lame import propagate
from driftlaw.profiling import count_flops
from tests.methods.images import batches
from tests.reference.lame import affinity_matrix, corrected


@pytest.mark.parametrize("affinity", ["rbf", "knn", "linear"])
@pytest.mark.parametrize("settings", [{}, {"neighbors": 2}, {"iterations": 4}], ids=str)
def test_predictions_equal_the_reference(confident_network, affinity, settings):
    adapter = driftlaw.adapt(confident_network, "lame", affinity=affinity, **settings)
    for images in [*batches(2), torch.cat(batches(3)), batches(1)[0][:2]]:
        with torch.no_grad():
            logits, features = logits_and_features(confident_network, images)
        matrix = affinity_matrix(features, affinity, settings.get("neighbors", 5))
        expected, count = corrected(logits.softmax(dim=1), matrix, settings.get("iterations", 100))
        assert count <= settings.get("iterations", 100)
        # The last iterations change probabilities by about 1e-8: more iterations are within this tolerance.
        torch.testing.assert_close(adapter(images).exp(), expected, rtol=0, atol=1e-12)


def test_iteration_stops_where_the_energy_stops_changing(confident_network):
    (images,) = batches(1)
    with torch.no_grad():
        logits, features = logits_and_features(confident_network, images)
    matrix = affinity_matrix(features, "rbf", 5)
    _, count = corrected(logits.softmax(dim=1), matrix)
    assert 3 <= count < 100
    log_probabilities = (logits.softmax(dim=1) + 1e-10).log()
    weights = torch.tensor(matrix, dtype=torch.float64)
    assert torch.equal(propagate(log_probabilities, weights, count), propagate(log_probabilities, weights, 100))
    assert not torch.equal(propagate(log_probabilities, weights, count - 1), propagate(log_probabilities, weights, 100))


@pytest.mark.parametrize("affinity", ["rbf", "knn", "linear"])
def test_a_single_image_keeps_its_prediction(confident_network, affinity):
    adapter = driftlaw.adapt(confident_network, "lame", affinity=affinity)
    image = batches(1)[0][:1]
    plain = driftlaw.adapt(confident_network, "source")(image)
    assert adapter(image).argmax() == plain.argmax()
    if affinity != "linear":
        torch.testing.assert_close(adapter(image).softmax(1), plain.softmax(1), rtol=0, atol=1e-9)


def test_equal_images_keep_their_prediction(confident_network):
    images = batches(1)[0][:1].repeat(4, 1, 1, 1)
    plain = driftlaw.adapt(confident_network, "source")(images)
    torch.testing.assert_close(
        driftlaw.adapt(confident_network, "lame")(images).softmax(1), plain.softmax(1), rtol=0, atol=1e-9
    )


def test_logits_are_log_probabilities_and_the_model_is_not_changed(confident_network):
    adapter = driftlaw.adapt(confident_network, "lame")
    (images,) = batches(1)
    logits = adapter(images)
    torch.testing.assert_close(logits.exp().sum(dim=1), torch.ones(6, dtype=torch.float64))
    assert torch.equal(adapter(images), logits)
    assert all(torch.equal(adapter.model.get_parameter(n), v) for n, v in confident_network.named_parameters())


def test_the_counted_cost_is_what_it_declares(network):
    adapter = driftlaw.adapt(network, "lame")
    _, forward = count_flops(lambda: network(batches(1)[0]))
    _, step = count_flops(lambda: adapter(batches(1)[0]))
    assert step / forward == pytest.approx(adapter.forward_cost + adapter.backward_cost, rel=0.1)
