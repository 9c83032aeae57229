"""Contrastive losses compared with loops, and the projector."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from driftlaw.components.contrastive import contrastive_loss, info_nce, make_projector


def random_views(count: int, images: int = 4) -> list[Tensor]:
    generator = torch.Generator().manual_seed(count)
    return [torch.randn(images, 5, generator=generator, dtype=torch.float64) for _ in range(count)]


def random_tensor(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def contrastive_loss_with_loops(views: list[Tensor], temperature: float) -> float:
    features = [(image, row / row.norm()) for view in views for image, row in enumerate(view)]
    losses = []
    for index, (image, anchor) in enumerate(features):
        others = [
            (other_image, math.exp(float(anchor @ row) / temperature))
            for other_index, (other_image, row) in enumerate(features)
            if other_index != index
        ]
        total = sum(term for _, term in others)
        positives = [-math.log(term / total) for other_image, term in others if other_image == image]
        losses.append(sum(positives) / len(positives))
    return sum(losses) / len(losses)


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_contrastive_loss_equals_a_loop_over_anchors_and_pairs(count, temperature):
    views = random_views(count)
    expected = contrastive_loss_with_loops(views, temperature)
    torch.testing.assert_close(contrastive_loss(views, temperature).item(), expected, rtol=1e-12, atol=0)


def test_equal_views_have_a_lower_loss_than_different_views():
    first, second = random_views(2)
    assert contrastive_loss([first, first], 0.1) < contrastive_loss([first, second], 0.1)


def test_the_length_of_features_does_not_matter():
    first, second = random_views(2)
    scaled = contrastive_loss([3 * first, second], 0.1), contrastive_loss([first, 0.5 * second], 0.1)
    torch.testing.assert_close(*scaled)


def test_the_gradient_is_finite_for_a_single_image():
    first, second = (view.requires_grad_() for view in random_views(2, images=1))
    contrastive_loss([first, second], 0.1).backward()
    assert first.grad.isfinite().all()


def test_info_nce_equals_its_definition():
    query, key, similarities = random_tensor(3, 4), random_tensor(3, 4, seed=1), random_tensor(3, 5, seed=2).tanh()
    is_negative = random_tensor(3, 5, seed=3) > 0
    losses = []
    for image in range(3):
        cosine = float(query[image] @ key[image] / query[image].norm() / key[image].norm())
        positive = math.exp(cosine / 0.07)
        negatives = [math.exp(float(value) / 0.07) for value in similarities[image][is_negative[image]]]
        losses.append(-math.log(positive / (positive + sum(negatives))))
    loss = info_nce(query, key, similarities, is_negative, temperature=0.07)
    assert float(loss) == pytest.approx(sum(losses) / 3, rel=1e-12)


def test_info_nce_without_negatives_is_zero():
    query = random_tensor(3, 4).requires_grad_()
    no_negatives = torch.zeros(3, 5, dtype=torch.bool)
    loss = info_nce(query, random_tensor(3, 4, seed=1), random_tensor(3, 5), no_negatives, 0.07)
    loss.backward()
    assert loss == 0
    assert query.grad.abs().max() < 1e-12


def test_the_projector_has_two_layers_drawn_from_the_generator_only():
    like = torch.empty(0, dtype=torch.float64)
    first, second = (make_projector(6, 3, torch.Generator().manual_seed(1), like) for _ in range(2))
    assert [type(layer) for layer in first] == [nn.Linear, nn.ReLU, nn.Linear]
    assert first(torch.rand(2, 6, dtype=torch.float64)).shape == (2, 3)
    for name, value in first.named_parameters():
        assert torch.equal(value, second.get_parameter(name))
        assert value.requires_grad
    assert first[0].weight.abs().max() <= 6**-0.5
    assert first[2].weight.abs().max() <= 3**-0.5
