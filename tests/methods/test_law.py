"""LAW against a reference implementation of the paper's equations, for every setting, in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import driftlaw
from driftlaw.base import Adapter
from driftlaw.components.augment import AugmentParams, augment
from driftlaw.components.batch_norm import fixed_batch_stats
from driftlaw.errors import UsageError
from driftlaw.execution.threads import ThreadEngine
from driftlaw.testing.fixtures import tiny_dense_model
from tests.methods.images import TERMS, batches
from tests.reference.law import ReferenceLaw
from tests.reference.tolerance import assert_same_step, assert_same_update

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


def settings_id(settings: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in settings.items()) or "defaults"


@pytest.mark.parametrize("settings", EVERY_SETTING, ids=settings_id)
def test_steps_equal_the_reference(network, settings):
    compare_with_reference(network, driftlaw.adapt(network, "law", seed=7, **settings), settings)


@pytest.mark.parametrize(  # settings that change which passes run, or what happens to their gradients
    "settings",
    [
        {},
        {"moments": "kept"},
        {"compat": "released_2024"},
        {"detach_target": True},
        {"fisher_every": 3, "fisher_settling": 1, "skip_share": 0.5},
        {"fisher_every": 4, "fisher_settling": 1, "skip_share": 0.5, "augment_every": 2},
    ],
    ids=settings_id,
)
@pytest.mark.parametrize("threads", [2, 3])
def test_steps_in_threads_equal_the_reference(network, settings, threads, two_threads):
    adapter = driftlaw.adapt(network, "law", seed=7, **settings)
    adapter._executor.engine = ThreadEngine(threads)
    compare_with_reference(network, adapter, settings)


def compare_with_reference(network: nn.Module, adapter: Adapter, settings: dict[str, Any]) -> None:
    """Compare four steps; each starts from the same weights, because a step amplifies rounding errors."""
    reference = ReferenceLaw(network, **settings)
    generator = torch.Generator().manual_seed(7)
    for images in batches(4):
        kind = adapter.step_kind()
        output = adapter.step(images)
        augmented = images if kind == "entropy" else augment(images, AugmentParams.from_generator(generator))
        logits, weights = reference.step(images, augmented)
        torch.testing.assert_close(output.logits, logits, rtol=0, atol=1e-12)
        names = adapter.diagnostic_labels()["layer_weights"]
        actual = dict(zip(names, output.diagnostics["layer_weights"].tolist(), strict=True))
        for name, weight in weights.items():
            assert actual[reference.group_of(name)] == pytest.approx(weight, abs=1e-10)
        assert_same_step(
            adapter.model, reference.model, reference.gradients, reference.learning_rates, terms=TERMS, lr_rtol=1e-9
        )


def test_unscored_batches_keep_the_weights_and_skip_unimportant_tensors(network):
    adapter = driftlaw.adapt(network, "law", fisher_every=3, fisher_settling=2, skip_share=0.9)
    kinds, weights = [], []
    for images in batches(7):
        kinds.append(adapter.step_kind())
        before = {name: adapter.model.get_parameter(name).clone() for name in adapter.trainable_names}
        weights.append(adapter.step(images).diagnostics["layer_weights"])
        changed = [not torch.equal(before[name], adapter.model.get_parameter(name)) for name in adapter.trainable_names]
        if kinds[-1] == "unscored":
            assert torch.equal(weights[-1], weights[-2])
            assert changed == adapter.moving.tolist()
            assert 0 < sum(changed) < len(changed)
    assert kinds == ["scored", "scored", "scored", "unscored", "unscored", "scored", "unscored"]
    assert all(value.requires_grad for value in adapter.trainable_parameters())


def test_settings_that_contradict_each_other_are_refused(network):
    with pytest.raises(UsageError, match=r"skip_share has no effect .* Set fisher_every to 2 or more"):
        driftlaw.adapt(network, "law", skip_share=0.1)
    with pytest.raises(UsageError, match=r"cannot be combined with moments='kept'"):
        driftlaw.adapt(network, "law", fisher_every=2, moments="kept")


def test_settings_override_the_fast_preset(network):
    adapter = driftlaw.adapt(network, "law", preset="fast", learning_rate=5e-4)
    assert adapter.config.fisher_every > 1
    assert adapter.config.learning_rate == 5e-4


def test_the_accumulated_fisher_numbers_are_the_means_of_the_full_diagonals(network):
    adapter = driftlaw.adapt(network, "law", seed=7, fisher_decay=0.9)
    reference = ReferenceLaw(network, fisher_decay=0.9)
    generator = torch.Generator().manual_seed(7)
    for images in batches(3):
        adapter.step(images)
        reference.step(images, augment(images, AugmentParams.from_generator(generator)))
    full_size = torch.stack([diagonal.mean() for diagonal in reference.diagonal.values()])
    torch.testing.assert_close(adapter.fisher, full_size, rtol=1e-10, atol=0)


def test_the_head_is_frozen(network):
    adapter = driftlaw.adapt(network, "law")
    for images in batches(2):
        adapter(images)
    assert torch.equal(adapter.model.head.weight, network.head.weight)
    assert torch.equal(adapter.model.head.bias, network.head.bias)


def test_the_most_important_tensor_has_weight_one_and_the_least_important_is_frozen(network):
    adapter = driftlaw.adapt(network, "law")
    weights = adapter.step(batches(1)[0]).diagnostics["layer_weights"]
    names = adapter.diagnostic_labels()["layer_weights"]
    assert weights.max() == pytest.approx(1, abs=1e-6)
    assert weights.min() == 0
    least_important = names[int(weights.argmin())]
    assert torch.equal(adapter.model.get_parameter(least_important), network.get_parameter(least_important))


def test_reset_clears_the_accumulated_fisher_information(network):
    adapter = driftlaw.adapt(network, "law")
    adapter(batches(1)[0])
    assert adapter.fisher.abs().sum() > 0
    adapter.reset()
    assert adapter.fisher.abs().sum() == 0


def test_the_fisher_state_has_a_few_numbers_per_tensor(network):
    adapter = driftlaw.adapt(network, "law")
    kept = sum(value.numel() for name, value in adapter.named_buffers() if not name.startswith(("model.", "window.")))
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


def changed_by_two_steps(model: nn.Module, **settings) -> set[str]:
    adapter = driftlaw.adapt(model, "law", **settings)
    for images in batches(2):
        assert adapter(images).isfinite().all()
    return {
        name
        for name, value in model.named_parameters()
        if not torch.equal(value, adapter.model.get_parameter(name).data)
    }


@pytest.fixture(params=[TinyVit, group_norm_network])
def network_without_batch_norm(request) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return request.param().double().eval()


@pytest.mark.parametrize(
    "layers", [["norm"], ["conv", "norm"], ["conv", "norm", "linear"], ["linear", "head"]], ids=str
)
def test_only_the_layers_of_the_settings_are_adapted(network_without_batch_norm, layers):
    kinds = {"conv": nn.Conv2d, "norm": (nn.LayerNorm, nn.GroupNorm), "linear": nn.Linear}
    wanted = set()
    for path, module in network_without_batch_norm.named_modules():
        is_head = path in ("head", "4")
        if any(isinstance(module, kinds[kind]) for kind in layers if kind != "head") and not is_head:
            wanted |= {f"{path}.{name}" for name, _ in module.named_parameters(recurse=False)}
        if is_head and "head" in layers:
            wanted |= {f"{path}.{name}" for name, _ in module.named_parameters(recurse=False)}
    changed = changed_by_two_steps(network_without_batch_norm, layers=layers)
    assert changed <= wanted
    assert len(changed) >= len(wanted) - 2  # the least important tensor of each step is frozen


def test_linear_layers_that_learn_take_the_step_written_reference():
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = TinyVit().double()
    adapter = driftlaw.adapt(
        model, "law", seed=7, layers=["linear"], learning_rate=1e-3, consistency_weight=0.0, tau=0.0
    )
    (images,) = batches(1)
    logits = model(images)
    loss = -(logits.softmax(1) * logits.log_softmax(1)).sum(1).mean()
    adapter(images)
    for name in ("mix.weight", "mlp.0.weight", "mlp.2.bias"):
        (gradient,) = torch.autograd.grad(loss, model.get_parameter(name), retain_graph=True)
        expected = model.get_parameter(name) - 1e-3 * gradient / (gradient.abs() + 1e-8)
        assert_same_update(adapter.model.get_parameter(name), expected, gradient, 1e-3, terms=TERMS)


def test_a_vit_adapts_the_layers_of_the_settings_with_per_sample_scores():
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = TinyVit().double()
    layers = ("norm1", "norm2", "norm", "mix", "out", "mlp.0", "mlp.2")
    wanted = {f"{layer}.{name}" for layer in layers for name in ("weight", "bias")}
    changed = changed_by_two_steps(model, layers=["norm", "linear"], fisher="per_sample", grouping="module")
    assert changed <= wanted
    assert len(changed) >= len(wanted) - 4  # the least important module of each step is frozen


def test_a_model_of_linear_layers_needs_the_setting_layers():
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 5), nn.ReLU(), nn.Linear(5, 2)).double()
    with pytest.raises(UsageError, match=r"no conv or norm layers to adapt.*layers=\['linear', 'head'\]"):
        driftlaw.adapt(model, "law")
    assert changed_by_two_steps(model, layers=["linear"]) <= {"1.weight", "1.bias"}
    with pytest.raises(UsageError, match="layers"):
        driftlaw.adapt(model, "law", layers=[])
    with pytest.raises(UsageError, match="layers"):
        driftlaw.adapt(model, "law", layers=["lstm"])


def test_mixed_statistics_apply_to_every_pass_of_a_step(network):
    with torch.no_grad():
        for layer in network.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.running_mean.normal_(generator=torch.Generator().manual_seed(0))
    batch_only, stored_only = (
        driftlaw.adapt(network, "law", statistics="mixed", source_share=share) for share in (0.0, 1.0)
    )
    plain = driftlaw.adapt(network, "law")
    for images in batches(2):
        assert torch.equal(batch_only(images), plain(images))
    (images,) = batches(1)
    torch.testing.assert_close(stored_only(images), network.eval()(images).detach(), rtol=0, atol=1e-10)


def test_per_sample_scores_with_mixed_statistics_equal_a_loop_over_images(network):
    adapter = driftlaw.adapt(network, "law", statistics="mixed", source_share=0.3, fisher="per_sample")
    (images,) = batches(1)
    expected = torch.zeros_like(adapter.fisher)
    with fixed_batch_stats(adapter.model, images):
        for image in images:
            log_likelihood = adapter.model(image[None]).log_softmax(1).max()
            gradients = torch.autograd.grad(log_likelihood, adapter.trainable_parameters())
            expected += torch.stack([value.square().mean() for value in gradients]) / len(images)
    adapter(images)
    torch.testing.assert_close(adapter.fisher, expected, rtol=1e-9, atol=0)


def test_per_sample_scores_refuse_the_stale_gradient(network):
    with pytest.raises(UsageError, match="released_2024"):
        driftlaw.adapt(network, "law", fisher="per_sample", compat="released_2024")


def test_an_unknown_setting_suggests_a_similar_name(network):
    with pytest.raises(UsageError, match="Did you mean 'tau'"):
        driftlaw.adapt(network, "law", taw=0.6)


def test_the_unscaled_importance_is_an_optional_diagnostic(network):
    adapter = driftlaw.adapt(network, "law", more_facts=True)
    diagnostics = adapter.step(next(iter(batches(1)))).diagnostics
    importance, weights = diagnostics["layer_sharpness"], diagnostics["layer_weights"]
    scaled = (importance - importance.min()) / (importance.max() - importance.min() + 1e-8)
    torch.testing.assert_close(scaled, weights)
    assert list(adapter.diagnostic_labels()) == ["layer_weights", "layer_sharpness"]


@pytest.mark.parametrize(
    ("classes", "expected"), [(2, (1e-3, 1.0, 0.1)), (100, (5e-5, 0.6, 1.0)), (1000, (2e-4, 1.0, 10.0))]
)
def test_defaults_are_the_papers_for_the_number_of_classes(classes, expected):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(784, classes))
    config = driftlaw.adapt(model).config
    assert (config.learning_rate, config.tau, config.consistency_weight) == expected
    given = driftlaw.adapt(model, learning_rate=0.5, tau=0.0).config
    assert (given.learning_rate, given.tau, given.consistency_weight) == (0.5, 0.0, expected[2])
    assert config.model_dump()["learning_rate"] == expected[0]


def test_without_batch_norm_the_rate_follows_the_size_of_the_weights():
    model = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(784, 10))
    nn.init.constant_(model[0].weight, 0.1)
    nn.init.constant_(model[3].weight, -0.1)
    assert driftlaw.adapt(model).config.learning_rate == pytest.approx(1e-4)
    assert driftlaw.adapt(model, "law", preset="cifar10-c").config.learning_rate == 1e-3


def test_the_rate_is_low_for_logits_per_pixel():
    assert driftlaw.adapt(tiny_dense_model(), "law").config.learning_rate == 3e-5


def test_an_unknown_number_of_classes_counts_as_ten():
    layers = [nn.Linear(8, 8), nn.Conv2d(3, 12, 3), nn.BatchNorm2d(12), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    model = nn.Sequential(*layers)
    with pytest.warns(UserWarning, match="number of classes is unknown"):
        config = driftlaw.adapt(model).config
    assert (config.learning_rate, config.consistency_weight) == (1e-3, 0.1)
