"""LAW against the version written by hand from the equations, setting by setting, in float64."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import driftlaw
from driftlaw.errors import UsageError
from driftlaw.ingredients.augmentation import Draw, augment
from driftlaw.models import build_model
from tests.reference.law import HandLaw

EVERY_SETTING = [
    {},
    {"learning_rate": 5e-5, "tau": 0.6, "consistency_weight": 1.0},
    {"tau": 0.0},
    {"tau": 1.3},
    {"consistency_weight": 0.0},
    {"consistency_weight": 10.0},
    {"grouping": "module"},
    {"grouping": "block"},
    {"reduction": "trace"},
    {"grouping": "block", "reduction": "trace"},
    {"fisher": "per_sample"},
    {"fisher": "per_sample", "grouping": "module"},
    {"moments": "kept"},
    {"compat": "released_2024"},
    {"compat": "released_2024", "moments": "kept"},
    {"detach_target": True},
    {"fisher_decay": 0.5},
    {"fisher_decay": 0.0},
]


@pytest.fixture
def network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return build_model("wrn_10_1", num_classes=4).double()


def batches(count: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    return [torch.rand(6, 3, 16, 16, generator=generator, dtype=torch.float64) for _ in range(count)]


@pytest.mark.parametrize(
    "settings", EVERY_SETTING, ids=lambda settings: " ".join(f"{k}={v}" for k, v in settings.items())
)
def test_three_steps_equal_the_hand_written_ones(network, settings):
    adapter = driftlaw.adapt(network, "law", seed=7, **settings)
    by_hand = HandLaw(network, **settings)
    generator = torch.Generator().manual_seed(7)
    for images in batches(3):
        output = adapter.step(images)
        answer, weights = by_hand.step(images, augment(images, Draw.from_generator(generator)))
        torch.testing.assert_close(output.logits, answer, rtol=0, atol=1e-10)
        told = dict(zip(adapter.fact_labels()["layer_weights"], output.facts["layer_weights"].tolist(), strict=True))
        for name, weight in weights.items():
            assert told[by_hand._group_of(name)] == pytest.approx(weight, abs=1e-10)
        for name, value in by_hand.learning.items():
            torch.testing.assert_close(adapter.model.get_parameter(name).data, value.data, rtol=0, atol=1e-10)


def test_the_scalar_fisher_sums_are_the_means_of_the_full_size_ones(network):
    adapter = driftlaw.adapt(network, "law", seed=7, fisher_decay=0.9)
    by_hand = HandLaw(network, fisher_decay=0.9)
    generator = torch.Generator().manual_seed(7)
    for images in batches(3):
        adapter.step(images)
        by_hand.step(images, augment(images, Draw.from_generator(generator)))
    full_size = torch.stack([diagonal.mean() for diagonal in by_hand.diagonal.values()])
    torch.testing.assert_close(adapter.fisher, full_size, rtol=1e-10, atol=0)


def test_the_head_never_moves(network):
    adapter = driftlaw.adapt(network, "law")
    for images in batches(2):
        adapter(images)
    assert torch.equal(adapter.model.head.weight, network.head.weight)
    assert torch.equal(adapter.model.head.bias, network.head.bias)


def test_the_sharpest_tensor_learns_in_full_and_the_flattest_is_frozen(network):
    adapter = driftlaw.adapt(network, "law")
    weights = adapter.step(batches(1)[0]).facts["layer_weights"]
    names = adapter.fact_labels()["layer_weights"]
    assert weights.max() == pytest.approx(1, abs=1e-6)
    assert weights.min() == 0
    flattest = names[int(weights.argmin())]
    assert torch.equal(adapter.model.get_parameter(flattest), network.get_parameter(flattest))


def test_the_answer_is_from_before_the_update(network):
    adapter = driftlaw.adapt(network, "law")
    (images,) = batches(1)
    before = adapter.predict(images)
    assert torch.equal(adapter(images), before)
    assert not torch.equal(adapter.predict(images), before)


def test_reset_clears_the_fisher_sums(network):
    adapter = driftlaw.adapt(network, "law")
    adapter(batches(1)[0])
    assert adapter.fisher.abs().sum() > 0
    adapter.reset()
    assert adapter.fisher.abs().sum() == 0


def test_nothing_of_the_size_of_the_network_is_kept_for_the_fisher(network):
    adapter = driftlaw.adapt(network, "law")
    kept = sum(value.numel() for name, value in adapter.named_buffers() if not name.startswith("model."))
    assert kept <= 3 * len(adapter.fact_labels()["layer_weights"])


def test_a_model_with_group_norm_adapts():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14 * 14, 4))
    adapter = driftlaw.adapt(model.double(), "law")
    adapter(batches(1)[0])
    assert not torch.equal(adapter.model[0].weight, model[0].weight)


def test_a_model_without_convolutions_and_norms_is_refused_with_a_reason():
    with pytest.raises(UsageError, match="Conv2d and norm layers"):
        driftlaw.adapt(nn.Sequential(nn.Flatten(), nn.Linear(12, 2)), "law")


def test_per_sample_scores_have_no_stale_gradient_to_add(network):
    with pytest.raises(UsageError, match="released_2024"):
        driftlaw.adapt(network, "law", fisher="per_sample", compat="released_2024")


def test_an_unknown_setting_names_its_neighbour(network):
    with pytest.raises(UsageError, match="did you mean «tau»"):
        driftlaw.adapt(network, "law", taw=0.6)
