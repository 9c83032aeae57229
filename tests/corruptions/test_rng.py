"""The counter-based generator."""

import numpy as np
import torch

from driftlaw.corruptions.rng import Draws

MASK = 2**64 - 1


def draws(count=50, seed=0):
    return Draws(seed, "test", 1, torch.arange(count))


def splitmix(word):
    """The published finaliser, on whole numbers."""
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB & MASK
    return word ^ (word >> 31)


def test_words_are_splitmix64_along_the_counter():
    from driftlaw.corruptions.rng import _signed_hash

    step = 0x9E3779B97F4A7C15
    for index in (0, 1, 9):
        key = splitmix((index * step + _signed_hash("0/test/1/purpose")) & MASK)
        expected = [splitmix((key + (place + 1) * step) & MASK) for place in range(5)]
        found = draws().words("purpose", 5)[index].numpy().astype(np.uint64).tolist()
        assert found == expected


def test_a_number_depends_on_its_image_alone():
    whole = draws().words("a", 10)
    some = Draws(0, "test", 1, torch.tensor([31, 4])).words("a", 3)
    assert torch.equal(some, whole[[31, 4], :3])


def test_purposes_and_seeds_are_independent():
    a, b, c = draws().normal("a", 2000), draws().normal("b", 2000), draws(seed=1).normal("a", 2000)
    for other in (b, c):
        assert abs(torch.corrcoef(torch.stack([a.flatten(), other.flatten()]))[0, 1]) < 0.015


def test_normal_numbers_have_the_moments_of_the_normal_distribution():
    values = draws(200).normal("x", 5000).double()
    assert abs(values.mean()) < 0.005
    assert abs(values.var() - 1) < 0.005
    assert abs((values**4).mean() - 3) < 0.05
    assert abs((values.abs() > 2).double().mean() - 0.0455) < 0.001


def test_uniform_numbers_fill_the_unit_interval_evenly():
    values = draws(200).uniform("x", 5000)
    counts = torch.histc(values, 20, 0, 1) / values.numel()
    assert (counts - 0.05).abs().max() < 0.002
    assert 0 < values.min() < values.max() < 1


def test_limits_are_kept_and_reached():
    values = draws(3000).below("x", torch.tensor(5))
    assert torch.bincount(values).tolist() == torch.bincount(values, minlength=5).tolist()
    assert torch.bincount(values).min() > 500


def test_directions_lie_between_their_bounds():
    cosine, sine = draws(3000).direction("x", -45.0, 45.0)
    degrees = torch.rad2deg(torch.atan2(sine, cosine))
    assert degrees.min() > -45
    assert degrees.max() < 45
    assert abs(degrees.mean()) < 1.5
