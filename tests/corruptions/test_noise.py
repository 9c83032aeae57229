"""Alias tables of shot noise."""

import math

import numpy as np
import pytest
import torch

from driftlaw.corruptions.noise import _alias_tables


@pytest.mark.parametrize("rate", [3, 75, 500])
def test_the_alias_tables_contain_the_poisson_probabilities(rate):
    thresholds, values, bits = _alias_tables(rate, torch.device("cpu"))
    keep = thresholds.view(256, -1).numpy() / 2 ** (32 - bits)
    counts, aliases = np.rint(values.view(256, -1, 2).numpy() / 255 * rate).astype(int).transpose(2, 0, 1)
    for level in (0, 1, 100, 255):
        chances = np.bincount(counts[level], keep[level] / 2**bits, 2000)
        chances += np.bincount(aliases[level], (1 - keep[level]) / 2**bits, 2000)
        mean = level / 255 * rate
        for k in {0, 1, int(mean), int(mean) + 1, int(mean + 3 * math.sqrt(mean))}:
            log = k * math.log(mean) - mean - math.lgamma(k + 1) if mean else (0 if k == 0 else -math.inf)
            assert chances[k] == pytest.approx(math.exp(log), abs=1e-6)


@pytest.mark.parametrize("rate", [3, 5, 12, 25, 50, 60, 75, 100, 250, 500])
def test_a_count_becomes_the_gray_level_that_double_precision_gives(rate):
    counts = np.arange(rate + 1)
    _, values, _ = _alias_tables(rate, torch.device("cpu"))
    kept_at_level_0 = values.view(256, -1, 2)[0, : rate + 1, 0].numpy()  # column k holds count k
    assert np.array_equal(np.uint8(kept_at_level_0), np.uint8(counts / rate * 255))
