"""In which order the images of a domain come."""

import numpy as np
import pytest

from driftlaw.streams.ordering import image_order

LABELS = np.repeat(np.arange(10), 100)[np.random.default_rng(5).permutation(1000)]


def ordered(order, seed=1, limit=None, concentration=0.1, labels=LABELS):
    return image_order(order, labels, seed=seed, limit=limit, concentration=concentration)


def neighbours_alike(numbers):
    """Return the share of images that have the class of the one before them; 1/10 by chance."""
    labels = LABELS[numbers]
    return float((labels[1:] == labels[:-1]).mean())


@pytest.mark.parametrize("order", ["shuffled", "as-is", "dirichlet"])
def test_every_image_comes_once(order):
    assert sorted(ordered(order)) == list(range(1000))


@pytest.mark.parametrize("order", ["shuffled", "as-is", "dirichlet"])
@pytest.mark.parametrize("limit", [1, 37, 1000, 5000])
def test_a_limit_takes_so_many_different_images(order, limit):
    numbers = ordered(order, limit=limit)
    assert len(numbers) == len(set(numbers)) == min(limit, 1000)


def test_a_limited_shuffle_is_the_beginning_of_the_whole_one():
    assert ordered("shuffled", limit=50).tolist() == ordered("shuffled")[:50].tolist()


def test_as_is_is_as_it_is_whatever_the_seed():
    assert ordered("as-is", seed=9, limit=5).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("order", ["shuffled", "dirichlet"])
def test_the_seed_alone_decides(order):
    np.random.seed(1)
    one = ordered(order, seed=3)
    np.random.seed(2)
    assert ordered(order, seed=3).tolist() == one.tolist()
    assert ordered(order, seed=4).tolist() != one.tolist()


def test_a_shuffle_has_no_runs_of_a_class():
    assert neighbours_alike(ordered("shuffled")) < 0.15


def test_a_small_concentration_clusters_classes():
    for seed in range(3):
        assert neighbours_alike(ordered("dirichlet", seed=seed, concentration=0.1)) > 0.9


def distance_from_balance(concentration):
    """Return how far the tenths of the stream are from an equal share of every class, 0 to 1, over ten seeds."""
    found = []
    for seed in range(10):
        parts = np.split(LABELS[ordered("dirichlet", seed=seed, concentration=concentration)], 10)
        shares = np.stack([np.bincount(part, minlength=10) / 100 for part in parts])
        found.append(np.abs(shares - 0.1).sum(1).mean() / 1.8)
    return float(np.mean(found))


def test_the_larger_the_concentration_the_more_balanced_a_stretch():
    spread = [distance_from_balance(concentration) for concentration in (0.01, 0.1, 1.0, 10.0, 1000.0)]
    assert spread == sorted(spread, reverse=True)
    assert spread[0] > 0.75
    assert spread[-1] < 0.1


@pytest.mark.parametrize("concentration", [1e-9, 1e-3, 1e6])
def test_extreme_concentrations_lose_no_image(concentration):
    assert sorted(ordered("dirichlet", concentration=concentration)) == list(range(1000))


def test_one_class_or_one_image_is_no_trouble():
    assert sorted(ordered("dirichlet", labels=np.zeros(7, dtype=np.int64))) == list(range(7))
    assert ordered("dirichlet", labels=np.array([3])).tolist() == [0]
