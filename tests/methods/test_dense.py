"""Logits per pixel (n, classes, h, w): equal to classification with one pixel, and to a reference with several."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import driftlaw
from driftlaw.components.augment import AugmentParams, augment, draw_augmentation
from driftlaw.errors import UsageError
from driftlaw.methods import registered_methods
from driftlaw.testing.fixtures import MethodUnderTest, make_images, tiny_dense_model, tiny_model
from driftlaw.testing.snapshots import state_of
from tests.reference.dense_law import ReferenceDenseLaw
from tests.reference.tolerance import assert_same_step

METHODS = registered_methods()
DENSE = sorted(name for name, kind in METHODS.items() if not kind.classification_only)
FEW_COPIES = {"cotta": {"augmentations": 2}}


class OnePixel(nn.Module):
    """Returns the logits of a classifier as (n, classes, 1, 1)."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, images):
        return self.network(images)[:, :, None, None]


@pytest.mark.parametrize("method", DENSE)
def test_one_pixel_gives_the_same_bits_as_classification(method):
    under_test, network = MethodUnderTest.create(method, FEW_COPIES.get(method)), tiny_model().double()
    flat, dense = under_test.adapter(network), under_test.adapter(OnePixel(network))
    for index in range(3):
        images = make_images(index, dtype=torch.float64)
        expected, output = flat.step(images), dense.step(images)
        assert torch.equal(output.logits, expected.logits[:, :, None, None])
        assert torch.equal(dense.predict(images).flatten(1), flat.predict(images))
        for name, value in expected.diagnostics.items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(output.diagnostics[name])), name
    parameters = dict(dense.model.network.named_parameters())
    for name, value in flat.model.named_parameters():
        assert torch.equal(value, parameters[name]), name


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"dense_augmentation": "geometric"},
        {"dense_augmentation": "geometric", "detach_target": True, "recompute": True, "consistency_weight": 10.0},
        {"fisher": "per_sample", "moments": "kept"},
        {"fisher_every": 2, "fisher_settling": 1, "skip_share": 0.5, "grouping": "module"},
    ],
    ids=str,
)
def test_steps_of_law_equal_the_reference_for_every_pixel(settings):
    network = tiny_dense_model().double()
    adapter = driftlaw.adapt(network, "law", seed=7, statistics="batch", learning_rate=1e-3, **settings)
    own = {name: value for name, value in settings.items() if name != "dense_augmentation"}
    reference, generator = ReferenceDenseLaw(network, **own), torch.Generator().manual_seed(7)
    for index in range(3):
        images = make_images(index, count=2, dtype=torch.float64)[:, :, :8, :10]
        output = adapter.step(images)
        if "dense_augmentation" in settings:
            reference.params, reference.size = AugmentParams.from_generator(generator), images.shape[2:]
            augmented = augment(images, reference.params)
        else:
            augmented = draw_augmentation(images, generator, "photometric")(images)
        logits, weights = reference.step(images, augmented)
        assert output.logits.shape == (2, 4, 4, 5)
        torch.testing.assert_close(output.logits, logits, rtol=0, atol=1e-12)
        if settings.get("grouping") is None:
            expected = torch.tensor(list(weights.values()), dtype=torch.float64)
            torch.testing.assert_close(output.diagnostics["layer_weights"], expected, rtol=0, atol=1e-10)
        changes = reference.gradients, reference.learning_rates
        assert_same_step(adapter.model, reference.model, *changes, terms=2 * 4 * 5, lr_rtol=1e-9)


@pytest.mark.parametrize("method", ["law", "law_plus", "cotta", "roid", "palm"])
def test_geometric_augmentation_changes_the_update_and_not_the_shape(method):
    found = []
    for mode in ("photometric", "geometric"):
        settings = {"dense_augmentation": mode, **FEW_COPIES.get(method, {})}
        adapter = driftlaw.adapt(tiny_dense_model(), method, seed=1, statistics="batch", **settings)
        logits = [adapter(make_images(index)) for index in range(2)]
        assert logits[1].shape == (8, 4, 8, 8)
        assert logits[1].isfinite().all()
        found.append(adapter.model[0].weight.detach() if method != "roid" else adapter.model[1].weight.detach())
    assert not torch.equal(*found)


@pytest.mark.parametrize("method", sorted(set(METHODS) - set(DENSE)))
def test_methods_for_classification_refuse_logits_per_pixel_with_the_reason(method):
    model = nn.Sequential(tiny_dense_model(), nn.Flatten(), nn.Linear(256, 8 * 16), nn.Unflatten(1, (8, 4, 4)))
    adapter = MethodUnderTest.create(method).adapter(model)
    before = state_of(adapter)
    for call in (adapter, adapter.predict):
        with pytest.raises(UsageError, match=rf"logits per pixel, .*{METHODS[method].classification_only}"):
            call(make_images())
    assert all(torch.equal(value, before["buffers"][name]) for name, value in adapter.named_buffers())
    assert adapter.steps == 0
