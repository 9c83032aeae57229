"""LAW against the version written by hand from the equations, setting by setting, in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import driftlaw
from driftlaw.base import open_lanes
from driftlaw.components.augment import AugmentParams, augment
from driftlaw.errors import UsageError
from driftlaw.methods import law
from tests.methods.made_up import batches
from tests.reference.law import ReferenceLaw

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
    {"recompute": True},
    {"recompute": True, "detach_target": True},
    {"fisher_every": 2, "fisher_settling": 1},
    {"fisher_every": 3, "fisher_settling": 1, "skip_share": 0.5},
    {"fisher_every": 2, "fisher_settling": 1, "skip_share": 0.9, "grouping": "module", "recompute": True},
    {"fisher_every": 4, "fisher_settling": 1, "skip_share": 0.5, "augment_every": 2},
]


@pytest.mark.parametrize(
    "settings", EVERY_SETTING, ids=lambda settings: " ".join(f"{k}={v}" for k, v in settings.items())
)
def test_four_steps_equal_the_hand_written_ones(network, settings):
    _compare_with_the_hand_written(network, settings)


@pytest.mark.parametrize(
    "settings",
    [settings for settings in EVERY_SETTING if not {"recompute", "fisher"} & set(settings)],
    ids=lambda settings: " ".join(f"{k}={v}" for k, v in settings.items()),
)
@pytest.mark.parametrize("lanes", [2, 3])
def test_steps_side_by_side_equal_the_hand_written_ones(network, settings, lanes, two_threads, monkeypatch):
    taken = []
    monkeypatch.setattr(law.Law, "has_third_lane", lambda self: lanes == 3)
    monkeypatch.setattr(law, "open_lanes", lambda count: taken.append(count) or open_lanes(count))
    _compare_with_the_hand_written(network, settings)
    steps = 4 - (settings.get("augment_every", 1) > 1)  # a step down the entropy alone has one pass
    assert taken == [lanes] * steps


def _compare_with_the_hand_written(network: nn.Module, settings: dict[str, Any]) -> None:
    adapter = driftlaw.adapt(network, "law", seed=7, **settings)
    by_hand = ReferenceLaw(network, **settings)
    generator = torch.Generator().manual_seed(7)
    for images in batches(4):
        kind = adapter.step_kind()
        output = adapter.step(images)
        augmented = images if kind == "entropy" else augment(images, AugmentParams.from_generator(generator))
        answer, weights = by_hand.step(images, augmented)
        torch.testing.assert_close(output.logits, answer, rtol=0, atol=1e-10)
        told = dict(
            zip(adapter.diagnostic_labels()["layer_weights"], output.diagnostics["layer_weights"].tolist(), strict=True)
        )
        for name, weight in weights.items():
            assert told[by_hand.group_of(name)] == pytest.approx(weight, abs=1e-10)
        for name, value in by_hand.trainable.items():
            torch.testing.assert_close(adapter.model.get_parameter(name).data, value.data, rtol=0, atol=1e-10)


def test_between_scored_batches_the_weights_stand_and_flat_tensors_too(network):
    adapter = driftlaw.adapt(network, "law", fisher_every=3, fisher_settling=2, skip_share=0.9)
    kinds, weights = [], []
    for images in batches(7):
        kinds.append(adapter.step_kind())
        before = {name: adapter.model.get_parameter(name).clone() for name in adapter.trainable}
        weights.append(adapter.step(images).diagnostics["layer_weights"])
        moved = [not torch.equal(before[name], adapter.model.get_parameter(name)) for name in adapter.trainable]
        if kinds[-1] == "unscored":
            assert torch.equal(weights[-1], weights[-2])
            assert moved == adapter.moving.tolist()
            assert 0 < sum(moved) < len(moved)
    assert kinds == ["scored", "scored", "scored", "unscored", "unscored", "scored", "unscored"]
    assert all(value.requires_grad for value in adapter._tensors())


def test_settings_that_contradict_each_other_are_refused(network):
    with pytest.raises(UsageError, match="skip_share: acts on batches that are not scored"):
        driftlaw.adapt(network, "law", skip_share=0.1)
    with pytest.raises(UsageError, match="take moments = «fresh»"):
        driftlaw.adapt(network, "law", fisher_every=2, moments="kept")


def test_the_fast_preset_is_laid_over_the_defaults(network):
    adapter = driftlaw.adapt(network, "law", preset="fast", learning_rate=5e-4)
    assert adapter.config.fisher_every > 1
    assert adapter.config.learning_rate == 5e-4


def test_the_scalar_fisher_sums_are_the_means_of_the_full_size_ones(network):
    adapter = driftlaw.adapt(network, "law", seed=7, fisher_decay=0.9)
    by_hand = ReferenceLaw(network, fisher_decay=0.9)
    generator = torch.Generator().manual_seed(7)
    for images in batches(3):
        adapter.step(images)
        by_hand.step(images, augment(images, AugmentParams.from_generator(generator)))
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
    weights = adapter.step(batches(1)[0]).diagnostics["layer_weights"]
    names = adapter.diagnostic_labels()["layer_weights"]
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
    assert kept <= 4 * len(adapter.diagnostic_labels()["layer_weights"])


class TinyVit(nn.Module):
    """Patches, a class token, attention and an MLP between LayerNorms, and a head: no BatchNorm, one convolution."""

    def __init__(self, width: int = 8, classes: int = 4) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, stride=8)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.norm1, self.norm2, self.norm = (nn.LayerNorm(width) for _ in range(3))
        self.mix = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.head = nn.Linear(width, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        patches = self.patches(images).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(images), -1, -1), patches], dim=1)
        query, key, value = self.mix(self.norm1(tokens)).chunk(3, dim=2)
        tokens = tokens + self.out(nn.functional.scaled_dot_product_attention(query, key, value))
        tokens = tokens + self.mlp(self.norm2(tokens))
        return self.head(self.norm(tokens)[:, 0])


def group_norm_network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14 * 14, 4))


def moved_by_two_steps(model: nn.Module, **settings) -> set[str]:
    adapter = driftlaw.adapt(model, "law", **settings)
    for images in batches(2):
        assert adapter(images).isfinite().all()
    return {
        name
        for name, value in model.named_parameters()
        if not torch.equal(value, adapter.model.get_parameter(name).data)
    }


@pytest.fixture(params=[TinyVit, group_norm_network])
def network_without_batches(request) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return request.param().double().eval()


@pytest.mark.parametrize(
    "layers", [["norm"], ["conv", "norm"], ["conv", "norm", "linear"], ["linear", "head"]], ids=str
)
def test_a_network_without_batch_norm_learns_the_layers_it_is_told_and_no_other(network_without_batches, layers):
    kinds = {"conv": nn.Conv2d, "norm": (nn.LayerNorm, nn.GroupNorm), "linear": nn.Linear}
    asked = set()
    for path, module in network_without_batches.named_modules():
        is_head = path in ("head", "4")
        if any(isinstance(module, kinds[kind]) for kind in layers if kind != "head") and not is_head:
            asked |= {f"{path}.{name}" for name, _ in module.named_parameters(recurse=False)}
        if is_head and "head" in layers:
            asked |= {f"{path}.{name}" for name, _ in module.named_parameters(recurse=False)}
    moved = moved_by_two_steps(network_without_batches, layers=layers)
    assert moved <= asked
    assert len(moved) >= len(asked) - 2  # the flattest tensor of each step stands still


def test_linear_layers_that_learn_take_the_step_written_by_hand():
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = TinyVit().double()
    adapter = driftlaw.adapt(model, "law", seed=7, layers=["linear"], consistency_weight=0.0, tau=0.0)
    (images,) = batches(1)
    logits = model(images)
    loss = -(logits.softmax(1) * logits.log_softmax(1)).sum(1).mean()
    adapter(images)
    for name in ("mix.weight", "mlp.0.weight", "mlp.2.bias"):
        (gradient,) = torch.autograd.grad(loss, model.get_parameter(name), retain_graph=True)
        expected = model.get_parameter(name) - 1e-3 * gradient / (gradient.abs() + 1e-8)
        torch.testing.assert_close(adapter.model.get_parameter(name), expected, rtol=0, atol=1e-10)


def test_a_vit_adapts_with_per_sample_scores_too():
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = TinyVit().double()
    assert moved_by_two_steps(model, layers=["norm", "linear"], fisher="per_sample", grouping="module")


def test_a_model_of_linear_layers_alone_is_refused_until_they_are_named():
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 5), nn.ReLU(), nn.Linear(5, 2)).double()
    with pytest.raises(UsageError, match=r"Conv2d and norm layers; take others in with layers = \[«linear», «head»\]"):
        driftlaw.adapt(model, "law")
    assert moved_by_two_steps(model, layers=["linear"]) <= {"1.weight", "1.bias"}
    with pytest.raises(UsageError, match="layers"):
        driftlaw.adapt(model, "law", layers=[])
    with pytest.raises(UsageError, match="layers"):
        driftlaw.adapt(model, "law", layers=["lstm"])


def test_mixed_statistics_hold_for_every_forward_pass_of_a_step(network):
    with torch.no_grad():
        for layer in network.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.running_mean.normal_(generator=torch.Generator().manual_seed(0))
    none, all_of_it = (driftlaw.adapt(network, "law", statistics="mixed", source_share=share) for share in (0.0, 1.0))
    plain = driftlaw.adapt(network, "law")
    for images in batches(2):
        assert torch.equal(none(images), plain(images))
    (images,) = batches(1)
    torch.testing.assert_close(all_of_it(images), network.eval()(images).detach(), rtol=0, atol=1e-10)


@pytest.mark.parametrize("fisher", ["batch", "per_sample"])
def test_mixed_statistics_are_the_same_for_a_batch_as_for_its_images(network, fisher):
    adapter = driftlaw.adapt(network, "law", statistics="mixed", source_share=0.3, fisher=fisher)
    for images in batches(2):
        weights = adapter.step(images).diagnostics["layer_weights"]
        assert weights.isfinite().all()
        assert weights.max() == pytest.approx(1, abs=1e-6)


def test_per_sample_scores_have_no_stale_gradient_to_add(network):
    with pytest.raises(UsageError, match="released_2024"):
        driftlaw.adapt(network, "law", fisher="per_sample", compat="released_2024")


def test_an_unknown_setting_names_its_neighbour(network):
    with pytest.raises(UsageError, match="Did you mean 'tau'"):
        driftlaw.adapt(network, "law", taw=0.6)


def test_weights_before_scaling_are_offered_where_asked_for(network):
    adapter = driftlaw.adapt(network, "law", more_facts=True)
    facts = adapter.step(next(iter(batches(1)))).diagnostics
    sharpness, weights = facts["layer_sharpness"], facts["layer_weights"]
    scaled = (sharpness - sharpness.min()) / (sharpness.max() - sharpness.min() + 1e-8)
    torch.testing.assert_close(scaled, weights)
    assert list(adapter.diagnostic_labels()) == ["layer_weights", "layer_sharpness"]
