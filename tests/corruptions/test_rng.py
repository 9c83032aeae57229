"""Counter-based random number generator."""

import hashlib

import numpy as np
import torch

from driftlaw.corruptions.rng import CounterRNG

MASK = 2**64 - 1


def make_rng(count=50, seed=0):
    return CounterRNG(seed, "test", 1, torch.arange(count))


def splitmix(word):
    """Published finaliser of splitmix64, on Python integers."""
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB & MASK
    return word ^ (word >> 31)


def test_words_are_splitmix64_along_the_counter():
    step = 0x9E3779B97F4A7C15
    start = int.from_bytes(hashlib.sha256(b"0/test/1/purpose").digest()[:8], "little")
    for index in (0, 1, 9):
        key = splitmix((index * step + start) & MASK)
        expected = [splitmix((key + (position + 1) * step) & MASK) for position in range(5)]
        words = make_rng().words("purpose", 5)[index].numpy().astype(np.uint64).tolist()
        assert words == expected


def test_a_number_depends_on_its_image_only():
    whole = make_rng().words("a", 10)
    some = CounterRNG(0, "test", 1, torch.tensor([31, 4])).words("a", 3)
    assert torch.equal(some, whole[[31, 4], :3])


def test_purposes_and_seeds_are_independent():
    a, b, c = make_rng().normal("a", 2000), make_rng().normal("b", 2000), make_rng(seed=1).normal("a", 2000)
    for other in (b, c):
        assert abs(torch.corrcoef(torch.stack([a.flatten(), other.flatten()]))[0, 1]) < 0.015


def test_normal_numbers_have_the_moments_of_the_normal_distribution():
    values = make_rng(200).normal("x", 5000).double()
    assert abs(values.mean()) < 0.005
    assert abs(values.var() - 1) < 0.005
    assert abs((values**4).mean() - 3) < 0.05
    assert abs((values.abs() > 2).double().mean() - 0.0455) < 0.001


def test_uniform_numbers_fill_the_unit_interval_evenly():
    values = make_rng(200).uniform("x", 5000)
    counts = torch.histc(values, 20, 0, 1) / values.numel()
    assert (counts - 0.05).abs().max() < 0.002
    assert 0 < values.min() < values.max() < 1


def test_integers_reach_every_value_below_the_limit():
    values = make_rng(3000).randint("x", torch.tensor(5))
    assert torch.bincount(values).tolist() == torch.bincount(values, minlength=5).tolist()
    assert torch.bincount(values).min() > 500


def test_directions_are_within_their_bounds():
    cosine, sine = make_rng(3000).direction("x", -45.0, 45.0)
    degrees = torch.rad2deg(torch.atan2(sine, cosine))
    assert degrees.min() > -45
    assert degrees.max() < 45
    assert abs(degrees.mean()) < 1.5
