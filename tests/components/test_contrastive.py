"""The contrastive loss against a loop, and what it pulls at."""

from __future__ import annotations

import math

import torch
from torch import nn

from driftlaw.components.contrastive import contrastive_loss, make_projector


def views(count: int, images: int = 4) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(count)
    return [torch.randn(images, 5, generator=generator, dtype=torch.float64) for _ in range(count)]


def by_loop(given: list[torch.Tensor], temperature: float) -> float:
    everything = [(image, row / row.norm()) for view in given for image, row in enumerate(view)]
    terms = []
    for place, (image, anchor) in enumerate(everything):
        others = [
            (i, math.exp(float(anchor @ row) / temperature)) for p, (i, row) in enumerate(everything) if p != place
        ]
        total = sum(value for _, value in others)
        positives = [-math.log(value / total) for i, value in others if i == image]
        terms.append(sum(positives) / len(positives))
    return sum(terms) / len(terms)


def test_it_equals_a_loop_over_anchors_and_pairs():
    for count in (2, 3):
        for temperature in (0.1, 1.0):
            loss = contrastive_loss(views(count), temperature)
            torch.testing.assert_close(loss.item(), by_loop(views(count), temperature), rtol=1e-12, atol=0)


def test_views_that_agree_cost_less_than_views_that_do_not():
    (one, other) = views(2)
    assert contrastive_loss([one, one], 0.1) < contrastive_loss([one, other], 0.1)


def test_the_length_of_a_feature_is_nothing_to_it():
    one, other = views(2)
    torch.testing.assert_close(contrastive_loss([3 * one, other], 0.1), contrastive_loss([one, 0.5 * other], 0.1))


def test_its_gradient_is_finite_even_at_one_image():
    one, other = (view.requires_grad_() for view in views(2, images=1))
    contrastive_loss([one, other], 0.1).backward()
    assert one.grad.isfinite().all()


def test_a_projector_is_two_layers_drawn_from_the_generator_alone():
    like = torch.empty(0, dtype=torch.float64)
    first, second = (make_projector(6, 3, torch.Generator().manual_seed(1), like) for _ in range(2))
    assert [type(layer) for layer in first] == [nn.Linear, nn.ReLU, nn.Linear]
    assert first(torch.rand(2, 6, dtype=torch.float64)).shape == (2, 3)
    for name, value in first.named_parameters():
        assert torch.equal(value, second.get_parameter(name))
        assert value.requires_grad
    assert first[0].weight.abs().max() <= 6**-0.5
    assert first[2].weight.abs().max() <= 3**-0.5
