"""AdaContrast against its reference implementation, in float64, and its properties."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import driftlaw
from driftlaw.components.views import StrongAugmentParams, draw_flips, strong_view, weak_view
from driftlaw.errors import UsageError
from driftlaw.models import build_model
from driftlaw.profiling import count_flops
from tests.reference.adacontrast import ReferenceAdaContrast

TINY = {"memory_size": 16, "neighbours": 3, "own_label_images": 6, "learning_rate": 0.01}


@pytest.fixture
def network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = build_model("wrn_10_1", num_classes=4).double()
    with torch.no_grad():  # centred logits and converged statistics, so that pseudo-labels are not all the same
        for _ in range(30):
            results = model.train()(torch.cat(batches(4)))
        model.head.bias -= results.mean(0)
    return model.eval()


def batches(count: int, size: int = 6) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    return [torch.rand(size, 3, 16, 16, generator=generator, dtype=torch.float64) for _ in range(count)]


def views(images: torch.Tensor, generator: torch.Generator) -> list[torch.Tensor]:
    weak = weak_view(images, draw_flips(len(images), generator))
    return [weak, *(strong_view(images, StrongAugmentParams.from_generator(len(images), generator)) for _ in range(2))]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"learning_rate": 0.01},
        TINY,
        TINY | {"memory_size": 8, "neighbours": 10},
        TINY | {"memory_size": 4},
        TINY | {"momentum": 0.5, "weight_decay": 0.1, "temperature": 0.2},
        TINY | {"classification_weight": 0.5, "contrast_weight": 2.0, "diversity_weight": 0.25},
        TINY | {"contrast_weight": 0.0, "diversity_weight": 0.0},
    ],
    ids=lambda settings: " ".join(f"{k}={v}" for k, v in settings.items()),
)
def test_steps_equal_the_reference(network, settings):
    adapter = driftlaw.adapt(network, "adacontrast", seed=7, **settings)
    reference = ReferenceAdaContrast(network, **settings)
    generator = torch.Generator().manual_seed(7)
    for images in batches(4):
        logits, _ = reference.step(images, *views(images, generator))
        torch.testing.assert_close(adapter(images), logits, rtol=0, atol=1e-10)
    for own, other in ((adapter.model, reference.model), (adapter.momentum_model, reference.momentum_model)):
        for name, value in other.named_parameters():
            torch.testing.assert_close(own.get_parameter(name).data, value.data, rtol=0, atol=1e-10)
    for name, value in reference.model.named_buffers():
        torch.testing.assert_close(adapter.model.get_buffer(name), value, rtol=0, atol=1e-10)


def test_pseudo_labels_come_from_neighbours_after_the_first_images(network):
    """The comparison above would show nothing if both kinds of labels were the same."""
    voting = ReferenceAdaContrast(network, **TINY)
    alone = ReferenceAdaContrast(network, **TINY | {"own_label_images": 1000})
    generator = torch.Generator().manual_seed(7)
    labels = []
    for images in batches(4):
        handed = views(images, generator)
        labels.append((voting.step(images, *handed)[1], alone.step(images, *handed)[1]))
    assert labels[0][0] == labels[0][1]
    assert any(voted != own for voted, own in labels[1:])
    assert len({label for voted, _ in labels for label in voted}) > 1


def test_logits_are_from_after_the_update_with_running_statistics(network):
    adapter = driftlaw.adapt(network, "adacontrast", **TINY)
    (images,) = batches(1)
    before = adapter.predict(images)
    logits = adapter(images)
    assert torch.equal(logits, adapter.predict(images))
    assert not torch.equal(logits, before)
    alone = torch.cat([adapter.predict(image[None]) for image in images])
    torch.testing.assert_close(logits, alone, rtol=0, atol=1e-10)


def test_all_parameters_and_the_running_statistics_move(network):
    adapter = driftlaw.adapt(network, "adacontrast", **TINY)
    adapter(batches(1)[0])
    for name, value in network.named_parameters():
        assert not torch.equal(adapter.model.get_parameter(name), value), name
    assert not torch.equal(adapter.model.norm.running_mean, network.norm.running_mean)
    assert adapter.updates_running_stats


def test_reset_empties_the_memories_and_takes_the_statistics_back(network):
    adapter = driftlaw.adapt(network, "adacontrast", **TINY)
    adapter(batches(1)[0])
    adapter.reset()
    assert adapter.bank.stored == adapter.queue.stored == 0
    assert adapter.queue.features.abs().sum() == 0
    assert torch.equal(adapter.model.norm.running_var, network.norm.running_var)


def test_a_batch_below_the_minimum_changes_neither_weights_nor_statistics(network):
    adapter = driftlaw.adapt(network, "adacontrast", minimum_batch=4, **TINY)
    images = batches(1)[0][:3]
    with pytest.warns(UserWarning, match="predicted without updating"):
        logits = adapter(images)
    assert torch.equal(logits, network(images).detach())
    assert torch.equal(adapter.model.norm.running_mean, network.norm.running_mean)
    assert adapter.bank.stored == 0


def test_one_image_on_feature_maps_of_one_pixel_changes_no_tensor():
    model = nn.Sequential(nn.Conv2d(3, 4, 16), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 3)).double()
    adapter = driftlaw.adapt(model, "adacontrast", **TINY)
    before = {name: value.clone() for name, value in adapter.state_dict().items() if isinstance(value, torch.Tensor)}
    with pytest.warns(UserWarning, match="predicted without updating"):
        adapter(batches(1)[0][:1])
    after = adapter.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())


def test_dropout_stays_off():
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Dropout(0.5), nn.Linear(4 * 14 * 14, 4)
    )
    adapters = [driftlaw.adapt(model.double(), "adacontrast", **TINY) for _ in range(2)]
    results = [adapter(batches(1)[0]) for adapter in adapters]
    assert torch.equal(*results)


def test_a_model_without_linear_head_is_refused():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    with pytest.raises(UsageError, match="no linear layer"):
        driftlaw.adapt(model, "adacontrast")


def test_the_counted_cost_is_what_it_declares():
    adapter = driftlaw.adapt(build_model("wrn_10_1", num_classes=4), "adacontrast", memory_size=64)
    images = batches(1)[0].float()
    _, forward = count_flops(lambda: adapter.predict(images))
    _, step = count_flops(lambda: adapter(images))
    assert step / forward == pytest.approx(adapter.forward_cost + adapter.backward_cost, rel=0.1)
