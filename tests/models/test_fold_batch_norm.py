"""Folding BatchNorm: the same answers from fewer layers."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from driftlaw.errors import UsageError
from driftlaw.models import build_model, fold_batch_norm
from driftlaw.models.fold_batch_norm import ScaleShift, count_batch_norm

NETWORKS = ["wrn_10_1", "wrn_16_2", "resnext_11_2x8", "resnet14_cifar", "resnet14_keras"]


def lived_in(model: nn.Module) -> nn.Module:
    """Return a network with norm layers that do something, as training leaves them."""
    generator = torch.Generator().manual_seed(1)
    for layer in model.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            layer.running_mean.normal_(std=0.3, generator=generator)
            layer.running_var.uniform_(0.5, 2.0, generator=generator)
            if layer.affine:
                nn.init.uniform_(layer.weight, 0.5, 1.5, generator=generator)
                nn.init.normal_(layer.bias, std=0.2, generator=generator)
    return model.eval()


def made(build) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return lived_in(build())


def images(dtype: torch.dtype = torch.float64, count: int = 3, side: int = 32) -> torch.Tensor:
    return torch.rand(count, 3, side, side, generator=torch.Generator().manual_seed(2), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
@torch.no_grad()
def test_a_folded_network_answers_the_same(name, dtype, tolerance):
    model = made(lambda: build_model(name, num_classes=7, normalize="cifar10")).to(dtype)
    folded = fold_batch_norm(model)
    torch.testing.assert_close(folded(images(dtype)), model(images(dtype)), atol=tolerance, rtol=tolerance)
    assert count_batch_norm(folded) == 0


@pytest.mark.parametrize("name", ["resnext_11_2x8", "resnet14_cifar", "resnet14_keras"])
def test_where_every_norm_follows_a_convolution_none_is_left(name):
    folded = fold_batch_norm(made(lambda: build_model(name, num_classes=7)))
    assert not any(isinstance(layer, ScaleShift) for layer in folded.modules())


def test_in_a_wide_resnet_the_norm_inside_a_block_is_folded_and_the_one_after_a_sum_is_not():
    model = made(lambda: build_model("wrn_10_2", num_classes=7))
    folded = fold_batch_norm(model)
    left = {name for name, layer in folded.named_modules() if isinstance(layer, ScaleShift)}
    # The first block's norm follows the stem, whose answer nothing else takes: there the shortcut is a convolution.
    assert left == {"stages.1.0.norm1", "stages.2.0.norm1", "norm"}
    assert folded.get_submodule("stages.0.0.conv1").bias is not None


def test_the_network_itself_is_not_touched_and_the_copy_does_not_learn():
    model = made(lambda: build_model("wrn_10_1", num_classes=7)).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    folded = fold_batch_norm(model)
    folded(images(torch.float32))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.training
    assert not folded.training
    assert not any(value.requires_grad for value in folded.parameters())


class TwoUses(nn.Module):
    """A convolution whose answer goes two ways, and one that is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.split, self.norm = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3)
        self.shared, self.once = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        features = self.split(values)
        features = features + self.norm(features)
        return (self.shared(features) + self.once(self.shared(features))).mean(dim=(2, 3))


@torch.no_grad()
def test_a_convolution_that_somebody_else_looks_at_stays_as_it_is():
    model = made(TwoUses).double()
    folded = fold_batch_norm(model)
    torch.testing.assert_close(folded(images()), model(images()), atol=1e-12, rtol=0)
    assert sum(isinstance(layer, ScaleShift) for layer in folded.modules()) == 2


class Undecided(nn.Module):
    """Looks at its values to know what to do, which no graph can hold."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, affine=False)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        features = self.norm(self.conv(values))
        return features.mean(dim=(2, 3)) if features.sum() > 0 else features.amax(dim=(2, 3))


@torch.no_grad()
def test_a_network_that_cannot_be_traced_gets_scales_and_shifts():
    model = made(Undecided).double()
    folded = fold_batch_norm(model)
    torch.testing.assert_close(folded(images()), model(images()), atol=1e-12, rtol=0)
    assert isinstance(folded.norm, ScaleShift)


class OwnNorm(nn.BatchNorm2d):
    """A norm and something more."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return F.relu(super().forward(values))


@pytest.mark.parametrize("kind", ["hook", "own class", "parametrized"])
@torch.no_grad()
def test_what_does_more_than_it_seems_is_left_alone(kind):
    norm = OwnNorm(4) if kind == "own class" else nn.BatchNorm2d(4)
    model = made(lambda: nn.Sequential(nn.Conv2d(3, 4, 3), norm, nn.Flatten(), nn.Linear(4 * 36, 2))).double()
    if kind == "hook":
        model[1].register_forward_hook(lambda layer, given, answer: answer + 1)
    if kind == "parametrized":
        weight_norm(model[0])
    folded = fold_batch_norm(model)
    small = images(side=8)
    torch.testing.assert_close(folded(small), model(small), atol=1e-12, rtol=0)


@torch.no_grad()
def test_hooks_of_the_whole_network_go_on_working():
    model = made(lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))).double()
    model.register_forward_hook(lambda layer, given, answer: answer.mean(dim=(2, 3)))
    folded = fold_batch_norm(model)
    assert folded(images()).shape == (3, 4)
    torch.testing.assert_close(folded(images()), model(images()), atol=1e-12, rtol=0)
    assert count_batch_norm(folded) == 0


@torch.no_grad()
def test_a_norm_alone_and_one_over_vectors_become_scales_and_shifts():
    for norm, values in ((nn.BatchNorm1d(5), torch.rand(4, 5)), (nn.BatchNorm2d(3), torch.rand(2, 3, 4, 4))):
        layer = made(lambda norm=norm: norm)
        folded = fold_batch_norm(layer)
        assert isinstance(folded, ScaleShift)
        torch.testing.assert_close(folded(values), layer(values))


def test_statistics_of_the_batch_at_hand_cannot_be_folded():
    with pytest.raises(UsageError, match="freeze_batch_stats"):
        fold_batch_norm(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, track_running_stats=False)))
