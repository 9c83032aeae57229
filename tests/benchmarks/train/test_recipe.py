"""Training recipe: schedule, defaults and validation."""

import math

import pytest

from benchmarks.train import Recipe
from driftlaw.errors import UsageError
from driftlaw.settings import parse


def test_the_rate_rises_for_an_epoch_and_falls_along_a_cosine():
    recipe = Recipe(epochs=11, learning_rate=0.2, warmup_epochs=1)
    assert recipe.rate_at(0) == 0
    assert recipe.rate_at(0.25) == pytest.approx(0.05)
    assert recipe.rate_at(1) == pytest.approx(0.2)
    for epoch in (2, 3.5, 6, 10.9):
        assert recipe.rate_at(epoch) == pytest.approx(0.1 * (1 + math.cos(math.pi * (epoch - 1) / 10)))
    assert recipe.rate_at(11) == pytest.approx(0, abs=1e-12)


def test_the_rate_is_never_negative_nor_above_the_highest():
    for warmup in (0, 0.5, 1, 3, 10):
        recipe = Recipe(epochs=3, warmup_epochs=warmup)
        rates = [recipe.rate_at(step / 10) for step in range(31)]
        assert min(rates) >= 0
        assert max(rates) <= 0.1 + 1e-12


def test_without_warm_up_the_first_rate_is_the_highest():
    assert Recipe(warmup_epochs=0).rate_at(0) == 0.1


def test_the_defaults_are_those_of_the_benchmarks_source_models():
    recipe = Recipe()
    assert (recipe.epochs, recipe.momentum, recipe.weight_decay) == (100, 0.9, 5e-4)
    assert (recipe.crop_padding, recipe.flip) == (4, True)
    assert (recipe.augmentation, recipe.consistency_weight, recipe.normalise) == ("crop_flip", 12, "none")
    assert recipe.normalisation() is None
    assert (recipe.compiled, recipe.capture) == ("auto", "off")
    assert Recipe(normalise="half").normalisation() == {"mean": [0.5] * 3, "std": [0.5] * 3}


def test_one_error_lists_all_invalid_settings():
    with pytest.raises(UsageError) as caught:
        parse(Recipe, {"epoch": 3, "batch_size": 0, "precision": "fp16", "learning_rate": -1}, where="training")
    message = str(caught.value)
    assert "Unknown setting 'epoch'. Did you mean 'epochs'?" in message
    assert "batch_size = 0" in message
    assert "precision = 'fp16'" in message
    assert "learning_rate = -1" in message
