"""Folding of BatchNorm layers."""

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


def with_statistics(model: nn.Module) -> nn.Module:
    """Return a model with non-trivial BatchNorm statistics, as after training."""
    generator = torch.Generator().manual_seed(1)
    for layer in model.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            layer.running_mean.normal_(std=0.3, generator=generator)
            layer.running_var.uniform_(0.5, 2.0, generator=generator)
            if layer.affine:
                nn.init.uniform_(layer.weight, 0.5, 1.5, generator=generator)
                nn.init.normal_(layer.bias, std=0.2, generator=generator)
    return model.eval()


def make(build) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return with_statistics(build())


def images(dtype: torch.dtype = torch.float64, count: int = 3, side: int = 32) -> torch.Tensor:
    return torch.rand(count, 3, side, side, generator=torch.Generator().manual_seed(2), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
@torch.no_grad()
def test_folded_model_gives_the_same_logits(name, dtype, tolerance):
    model = make(lambda: build_model(name, num_classes=7, normalize="cifar10")).to(dtype)
    folded = fold_batch_norm(model)
    torch.testing.assert_close(folded(images(dtype)), model(images(dtype)), atol=tolerance, rtol=tolerance)
    assert count_batch_norm(folded) == 0


@pytest.mark.parametrize("name", ["resnext_11_2x8", "resnet14_cifar", "resnet14_keras"])
def test_norms_after_convolutions_are_all_folded(name):
    folded = fold_batch_norm(make(lambda: build_model(name, num_classes=7)))
    assert not any(isinstance(layer, ScaleShift) for layer in folded.modules())


def test_wide_resnet_folds_norms_inside_blocks_but_not_after_sums():
    model = make(lambda: build_model("wrn_10_2", num_classes=7))
    folded = fold_batch_norm(model)
    left = {name for name, layer in folded.named_modules() if isinstance(layer, ScaleShift)}
    # The first block's norm follows the stem and is its only consumer: the shortcut starts after the norm.
    assert left == {"stages.1.0.norm1", "stages.2.0.norm1", "norm"}
    assert folded.get_submodule("stages.0.0.conv1").bias is not None


def test_original_is_unchanged_and_the_copy_is_frozen():
    model = make(lambda: build_model("wrn_10_1", num_classes=7)).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    folded = fold_batch_norm(model)
    folded(images(torch.float32))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.training
    assert not folded.training
    assert not any(value.requires_grad for value in folded.parameters())


class TwoUses(nn.Module):
    """A convolution with two consumers, and one that is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.split, self.norm = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3)
        self.shared, self.once = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        features = self.split(values)
        features = features + self.norm(features)
        return (self.shared(features) + self.once(self.shared(features))).mean(dim=(2, 3))


@torch.no_grad()
def test_convolutions_with_other_consumers_are_kept():
    model = make(TwoUses).double()
    folded = fold_batch_norm(model)
    torch.testing.assert_close(folded(images()), model(images()), atol=1e-12, rtol=0)
    assert sum(isinstance(layer, ScaleShift) for layer in folded.modules()) == 2


class DataDependent(nn.Module):
    """Has control flow that depends on values, which torch.fx cannot trace."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, affine=False)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        features = self.norm(self.conv(values))
        return features.mean(dim=(2, 3)) if features.sum() > 0 else features.amax(dim=(2, 3))


@torch.no_grad()
def test_untraceable_model_gets_scale_shift_layers():
    model = make(DataDependent).double()
    folded = fold_batch_norm(model)
    torch.testing.assert_close(folded(images()), model(images()), atol=1e-12, rtol=0)
    assert isinstance(folded.norm, ScaleShift)


class OwnNorm(nn.BatchNorm2d):
    """A subclass that does more than normalize."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return F.relu(super().forward(values))


@pytest.mark.parametrize("kind", ["hook", "own class", "parametrized"])
@torch.no_grad()
def test_special_layers_are_kept(kind):
    norm = OwnNorm(4) if kind == "own class" else nn.BatchNorm2d(4)
    model = make(lambda: nn.Sequential(nn.Conv2d(3, 4, 3), norm, nn.Flatten(), nn.Linear(4 * 36, 2))).double()
    if kind == "hook":
        model[1].register_forward_hook(lambda layer, given, output: output + 1)
    if kind == "parametrized":
        weight_norm(model[0])
    folded = fold_batch_norm(model)
    small = images(side=8)
    torch.testing.assert_close(folded(small), model(small), atol=1e-12, rtol=0)


@torch.no_grad()
def test_hooks_of_the_model_are_kept():
    model = make(lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))).double()
    model.register_forward_hook(lambda layer, given, output: output.mean(dim=(2, 3)))
    folded = fold_batch_norm(model)
    assert folded(images()).shape == (3, 4)
    torch.testing.assert_close(folded(images()), model(images()), atol=1e-12, rtol=0)
    assert count_batch_norm(folded) == 0


@torch.no_grad()
def test_single_norm_layers_become_scale_shift():
    for norm, values in ((nn.BatchNorm1d(5), torch.rand(4, 5)), (nn.BatchNorm2d(3), torch.rand(2, 3, 4, 4))):
        layer = make(lambda norm=norm: norm)
        folded = fold_batch_norm(layer)
        assert isinstance(folded, ScaleShift)
        torch.testing.assert_close(folded(values), layer(values))


def test_batch_statistics_raise():
    with pytest.raises(UsageError, match="freeze_batch_stats"):
        fold_batch_norm(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, track_running_stats=False)))
