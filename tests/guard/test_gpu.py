"""The guard on a GPU: updates are judged inside captured steps, and the host reads the result later."""

import pytest
import torch

import driftlaw
from driftlaw.methods import list_methods
from driftlaw.testing.fixtures import MethodUnderTest, make_images, tiny_model
from tests.execution.networks import needs_gpu

pytestmark = needs_gpu


@pytest.mark.parametrize("method", list_methods())
def test_bad_images_do_not_change_the_predictions_of_the_others(method):
    under_test = MethodUnderTest.create(method, {"guard": True, "precision": "float32"})
    adapter, other = under_test.adapter().cuda(), under_test.adapter().cuda()
    bad = torch.tensor([False, True, False, False, True, False, False, False, False, False])
    for index in range(3):
        images = make_images(index, count=10).cuda()
        spoiled = images.clone()
        spoiled[bad] = torch.nan if index < 2 else 0.0
        logits = adapter(spoiled)
        torch.testing.assert_close(logits[~bad], other(images[~bad]), rtol=1e-3, atol=1e-3)
        assert logits[bad].isnan().all() if index < 2 else logits[bad].isfinite().all()
    assert adapter.guard.counts["skip_image"] == 3


@pytest.mark.parametrize("capture", ["auto", "off"])
def test_updates_that_are_too_large_are_undone(capture):
    adapter = driftlaw.adapt(
        tiny_model(), "tent", learning_rate=1e3, statistics="batch", capture=capture, guard=True
    ).cuda()
    source = [value.clone() for value in adapter.trainable_parameters()]
    for index in range(6):
        assert adapter(make_images(index).cuda()).isfinite().all()
    assert all(torch.equal(before, now) for before, now in zip(source, adapter.trainable_parameters(), strict=True))
    assert adapter.guard.counts["skip_update"] >= 5
    assert adapter.guard.scale < 1


def test_a_saved_guard_continues():
    adapters = [driftlaw.adapt(tiny_model(), "law", statistics="batch", guard=True).cuda() for _ in range(2)]
    for index in range(12):
        adapters[0](make_images(index).cuda())
    adapters[1].load_state_dict(adapters[0].state_dict())
    assert len(adapters[1].guard.signals) == len(adapters[0].guard.signals) > 8
    assert adapters[1](make_images(12).cuda()).isfinite().all()
