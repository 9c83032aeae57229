"""CorruptedImageCache."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from driftlaw.base import Domain
from driftlaw.datasets import load_dataset
from driftlaw.errors import UsageError
from driftlaw.streams import image_cache, make_stream
from driftlaw.streams.image_cache import CorruptedImageCache


@pytest.fixture
def cache() -> CorruptedImageCache:
    return CorruptedImageCache(load_dataset("cifar10-embedded"), None, 0, "cpu")


def test_cached_images_equal_computed_images(cache):
    fog, indices = Domain("fog", 3), np.array([5, 900, 17])
    first = cache.get(fog, indices)
    assert torch.equal(cache.get(fog, indices[::-1].copy()), first.flip(0))
    fresh = CorruptedImageCache(cache.dataset, None, 0, "cpu").get(fog, np.array([900]))
    assert torch.equal(fresh[0], first[1])


def test_images_are_computed_once(cache, monkeypatch):
    computed = []
    real = image_cache.corrupt
    monkeypatch.setattr(image_cache, "corrupt", lambda *a, **k: computed.extend(k["indices"].tolist()) or real(*a, **k))
    cache.get(Domain("contrast", 5), np.array([1, 2, 3]))
    cache.get(Domain("contrast", 5, round=2), np.array([3, 4]))
    assert computed == [1, 2, 3, 4]


def test_full_cache_computes_the_same_images(cache, monkeypatch):
    cached = cache.get(Domain("snow", 5), np.arange(4))
    monkeypatch.setattr(image_cache, "CACHE_BYTES", 0)
    assert torch.equal(CorruptedImageCache(cache.dataset, None, 0, "cpu").get(Domain("snow", 5), np.arange(4)), cached)


def test_streams_of_the_same_images_share_a_cache():
    first = make_stream("embedded", limit=20)
    assert make_stream("embedded", limit=20, seed=2, like=first).cache is first.cache
    assert make_stream("embedded", limit=20, corruption_seed=1, like=first).cache is not first.cache
    with pytest.raises(UsageError, match="like is of type int"):
        make_stream("embedded", like=3)
