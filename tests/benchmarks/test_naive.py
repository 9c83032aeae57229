"""The naive implementations agree with driftlaw's methods, step by step, in float64."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch

import driftlaw
from benchmarks import naive_law, naive_tent
from benchmarks.errors import compare_errors
from benchmarks.naive_law import NaiveLaw
from benchmarks.naive_tent import NaiveTent
from driftlaw.errors import UsageError
from driftlaw.models import build_model

STEPS = 5


def random_model(name):
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return build_model(name, num_classes=10).double().eval()


@pytest.fixture
def model():
    return random_model("wrn_10_1")


def batches(count):
    generator = torch.Generator().manual_seed(1)
    return [torch.rand(8, 3, 16, 16, generator=generator, dtype=torch.float64) for _ in range(count)]


def assert_same_steps(adapter, naive):
    for images in batches(STEPS):
        torch.testing.assert_close(adapter(images), naive.step(images), rtol=0, atol=1e-8)
    for name, value in naive.model.named_parameters():
        torch.testing.assert_close(adapter.model.get_parameter(name).data, value.data, rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    "settings",
    [{}, {"learning_rate": 5e-5, "tau": 0.6, "consistency_weight": 1.0}, {"tau": 1.3, "consistency_weight": 10.0}],
)
def test_naive_law_agrees_with_law(model, settings):
    adapter = driftlaw.adapt(model, "law", seed=11, **settings)
    assert_same_steps(adapter, NaiveLaw(copy.deepcopy(model), seed=11, **settings))


def test_naive_tent_agrees_with_tent(model):
    assert_same_steps(driftlaw.adapt(model, "tent"), NaiveTent(copy.deepcopy(model)))


def test_naive_methods_agree_for_logits_per_pixel():
    model, settings = random_model("fpn_wrn_10_1"), {"statistics": "batch"}
    assert_same_steps(driftlaw.adapt(model, "tent", **settings), NaiveTent(copy.deepcopy(model)))
    for recompute in (False, True):
        adapter = driftlaw.adapt(model, "law", seed=11, recompute=recompute, learning_rate=1e-3, **settings)
        assert_same_steps(adapter, NaiveLaw(copy.deepcopy(model), seed=11))


def test_naive_law_holds_fisher_sums_at_full_size(model):
    naive = NaiveLaw(copy.deepcopy(model))
    naive.step(batches(1)[0])
    assert [total.shape for total in naive.fisher] == [value.shape for value in naive.parameters]
    assert all(bool((total >= 0).all()) for total in naive.fisher)
    assert sum(float(total.data.sum()) for total in naive.fisher) > 0


def test_naive_law_does_not_update_the_head(model):
    naive = NaiveLaw(copy.deepcopy(model))
    for images in batches(2):
        naive.step(images)
    assert torch.equal(naive.model.head.weight, model.head.weight)
    assert not torch.equal(naive.model.conv.weight, model.conv.weight)


@pytest.mark.parametrize(
    ("module", "expected"),
    [(naive_law, ["from driftlaw.components.augment import AugmentParams, augment"]), (naive_tent, [])],
)
def test_naive_implementations_import_only_the_augmentation(module, expected):
    lines = Path(module.__file__).read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if "driftlaw" in line and "import" in line] == expected


def test_errors_of_naive_implementations_agree():
    record = compare_errors("embedded", device=torch.device("cpu"), limit=10)
    errors = {row["label"]: row["error"] for row in record["rows"]}
    assert list(errors) == ["naive tent", "tent, float32", "tent", "naive law", "law, float32", "law"]
    assert errors["tent, float32"] == pytest.approx(errors["naive tent"], abs=2)
    assert errors["law, float32"] == pytest.approx(errors["naive law"], abs=2)


def test_errors_need_a_naive_implementation():
    with pytest.raises(UsageError, match="No naive implementation of cotta"):
        compare_errors("embedded", device=torch.device("cpu"), methods=["cotta"])
