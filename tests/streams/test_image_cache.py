"""Pixels: made once, kept, the same whatever was asked for before."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from driftlaw.base import Domain
from driftlaw.datasets import load_dataset
from driftlaw.streams import image_cache as pixels
from driftlaw.streams import make_stream


@pytest.fixture
def some_pixels() -> pixels.Pixels:
    return pixels.Pixels(load_dataset("cifar10-embedded"), None, 0, "cpu")


def test_what_was_kept_is_what_would_be_made_now(some_pixels):
    fog, numbers = Domain("fog", 3), np.array([5, 900, 17])
    first = some_pixels.of(fog, numbers)
    assert torch.equal(some_pixels.of(fog, numbers[::-1].copy()), first.flip(0))
    fresh = pixels.Pixels(some_pixels.source, None, 0, "cpu").of(fog, np.array([900]))
    assert torch.equal(fresh[0], first[1])


def test_nothing_is_made_twice(some_pixels, monkeypatch):
    made = []
    real = pixels.corrupt
    monkeypatch.setattr(pixels, "corrupt", lambda *a, **k: made.extend(k["indices"].tolist()) or real(*a, **k))
    some_pixels.of(Domain("contrast", 5), np.array([1, 2, 3]))
    some_pixels.of(Domain("contrast", 5, round=2), np.array([3, 4]))
    assert made == [1, 2, 3, 4]


def test_without_room_images_are_made_anew_and_the_same(some_pixels, monkeypatch):
    kept = some_pixels.of(Domain("snow", 5), np.arange(4))
    monkeypatch.setattr(pixels, "KEPT_BYTES", 0)
    assert torch.equal(pixels.Pixels(some_pixels.source, None, 0, "cpu").of(Domain("snow", 5), np.arange(4)), kept)


def test_streams_of_the_same_images_share_them():
    first = make_stream("embedded", limit=20)
    assert make_stream("embedded", limit=20, seed=2, like=first).pixels is first.pixels
    assert make_stream("embedded", limit=20, corruption_seed=1, like=first).pixels is not first.pixels
