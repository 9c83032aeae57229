"""Order of the images within a domain."""

import numpy as np
import pytest

from driftlaw.streams.ordering import image_order

LABELS = np.repeat(np.arange(10), 100)[np.random.default_rng(5).permutation(1000)]


def ordered(order, seed=1, limit=None, concentration=0.1, labels=LABELS):
    return image_order(order, labels, seed=seed, limit=limit, concentration=concentration)


def repeated_class_rate(indices):
    """Return the fraction of images with the class of the previous image; 1/10 by chance."""
    labels = LABELS[indices]
    return float((labels[1:] == labels[:-1]).mean())


@pytest.mark.parametrize("order", ["shuffled", "as-is", "dirichlet"])
def test_every_image_occurs_once(order):
    assert sorted(ordered(order)) == list(range(1000))


@pytest.mark.parametrize("order", ["shuffled", "as-is", "dirichlet"])
@pytest.mark.parametrize("limit", [1, 37, 1000, 5000])
def test_limit_selects_distinct_images(order, limit):
    indices = ordered(order, limit=limit)
    assert len(indices) == len(set(indices)) == min(limit, 1000)


def test_limited_shuffle_is_a_prefix_of_the_full_one():
    assert ordered("shuffled", limit=50).tolist() == ordered("shuffled")[:50].tolist()


def test_as_is_ignores_the_seed():
    assert ordered("as-is", seed=9, limit=5).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("order", ["shuffled", "dirichlet"])
def test_order_depends_only_on_the_seed(order):
    np.random.seed(1)
    one = ordered(order, seed=3)
    np.random.seed(2)
    assert ordered(order, seed=3).tolist() == one.tolist()
    assert ordered(order, seed=4).tolist() != one.tolist()


def test_shuffled_order_has_no_class_runs():
    assert repeated_class_rate(ordered("shuffled")) < 0.15


def test_small_concentration_clusters_classes():
    for seed in range(3):
        assert repeated_class_rate(ordered("dirichlet", seed=seed, concentration=0.1)) > 0.9


def distance_from_balance(concentration):
    """Return the mean distance of the tenths of the stream from balanced classes, 0 to 1, over ten seeds."""
    distances = []
    for seed in range(10):
        parts = np.split(LABELS[ordered("dirichlet", seed=seed, concentration=concentration)], 10)
        shares = np.stack([np.bincount(part, minlength=10) / 100 for part in parts])
        distances.append(np.abs(shares - 0.1).sum(1).mean() / 1.8)
    return float(np.mean(distances))


def test_larger_concentration_is_more_balanced():
    spread = [distance_from_balance(concentration) for concentration in (0.01, 0.1, 1.0, 10.0, 1000.0)]
    assert spread == sorted(spread, reverse=True)
    assert spread[0] > 0.75
    assert spread[-1] < 0.1


@pytest.mark.parametrize("concentration", [1e-9, 1e-3, 1e6])
def test_extreme_concentrations_keep_all_images(concentration):
    assert sorted(ordered("dirichlet", concentration=concentration)) == list(range(1000))


def test_one_class_or_one_image():
    assert sorted(ordered("dirichlet", labels=np.zeros(7, dtype=np.int64))) == list(range(7))
    assert ordered("dirichlet", labels=np.array([3])).tolist() == [0]
