"""Images without information or with invalid pixels do not influence the others, for every method."""

import pytest
import torch
from torch import nn

import driftlaw
from driftlaw.errors import DriftlawWarning, UsageError
from driftlaw.methods import list_methods
from driftlaw.testing.fixtures import MethodUnderTest, make_images, tiny_model
from driftlaw.testing.snapshots import differences, state_of


def spoil(images, kind):
    images[[1, 4]] = {"nan": torch.nan, "infinite": torch.inf, "out of range": 17.0, "black": 0.0, "constant": 0.6}[
        kind
    ]
    return images


def with_two_bad_images(index, kind):
    """Return the ten images of a batch, and the eight good ones among them."""
    images = make_images(index, count=10)
    good = torch.ones(10, dtype=torch.bool)
    good[[1, 4]] = False
    return spoil(images.clone(), kind), images[good], good


@pytest.mark.parametrize(
    ("method", "kind"),
    [(method, kind) for method in list_methods() for kind in ("nan", "black")]
    + [("law", kind) for kind in ("infinite", "out of range", "constant")],
)
def test_good_images_are_predicted_as_if_the_bad_ones_were_absent(method, kind):
    under_test = MethodUnderTest.create(method, {"guard": True})
    adapter, other = under_test.adapter(), under_test.adapter()
    for index in range(3):
        spoiled, good_images, good = with_two_bad_images(index, kind)
        logits = adapter(spoiled)
        assert torch.equal(logits[good], other(good_images))
        if kind in ("black", "constant"):
            assert torch.equal(logits[~good], other.source_logits(spoiled)[~good])
        else:
            assert logits[~good].isnan().all()
    assert adapter.guard.counts["skip_image"] == 3
    assert not differences(state_of(other)["buffers"], state_of(adapter)["buffers"])


def test_bad_images_can_raise_and_then_nothing_has_changed():
    adapter = MethodUnderTest.create("law", {"guard": {"bad_images": "raise"}}).adapter()
    adapter(make_images(0))
    before = state_of(adapter)
    with pytest.raises(UsageError, match="2 of 10 images have pixels that are NaN or out of range"):
        adapter(with_two_bad_images(1, "nan")[0])
    assert not differences(before, state_of(adapter))


def test_a_batch_of_bad_images_gets_nan_and_changes_no_weight():
    adapter = MethodUnderTest.create("tent", {"guard": True}).adapter_after(2)
    before = {name: value.clone() for name, value in adapter.named_parameters()}
    assert adapter(torch.full((4, 3, 16, 16), torch.nan)).isnan().all()
    assert not adapter(torch.zeros(4, 3, 16, 16)).isnan().any()
    assert not differences(before, dict(adapter.named_parameters()))


def test_a_first_batch_that_is_out_of_range_raises_with_a_hint():
    adapter = MethodUnderTest.create("tent", {"guard": True}).adapter()
    with pytest.raises(UsageError, match="divide by 255"):
        adapter(255 * make_images(0))


def test_normalised_images_are_checked_before_they_are_clamped():
    adapter = driftlaw.adapt(tiny_model(), "norm", mean=0.5, std=0.25, guard=True)
    images = (make_images(0) - 0.5) / 0.25
    adapter(images)
    images[3, 0, 0, 0] = 100.0
    assert adapter(images).isnan().any(1).nonzero().flatten().tolist() == [3]


def test_fifty_black_batches_do_not_change_the_layer_weights():
    adapter = MethodUnderTest.create("law", {"guard": True}).adapter_after(3)
    before = adapter.fisher.clone()
    for _ in range(50):
        adapter(torch.zeros(8, 3, 16, 16))
    assert torch.equal(adapter.fisher, before)


class StandardiseEachImage(nn.Module):
    """A network that returns NaN for a constant image, as (x − mean)/std is 0/0 there."""

    def __init__(self):
        super().__init__()
        self.network = tiny_model()

    def forward(self, images):
        mean, std = images.mean((1, 2, 3), keepdim=True), images.std((1, 2, 3), keepdim=True)
        return self.network((images - mean) / std)


@pytest.mark.filterwarnings("ignore::driftlaw.errors.DriftlawWarning")
@pytest.mark.parametrize("method", list_methods())
def test_a_legal_frame_without_finite_logits_spoils_nothing_without_a_guard(method):
    under_test = MethodUnderTest.create(method)
    adapter, other = under_test.adapter(StandardiseEachImage()), under_test.adapter(StandardiseEachImage())
    for index in range(3):
        spoiled, good_images, good = with_two_bad_images(index, "black")
        logits = adapter(spoiled)
        if method == "cotta":  # it predicts noisy copies, which are not constant
            assert logits.isfinite().all()
            continue
        assert logits[~good].isnan().all()
        assert torch.equal(logits[good], other(good_images))


def test_the_warning_about_such_a_frame_says_how_many():
    adapter = MethodUnderTest.create("tent").adapter(StandardiseEachImage())
    with pytest.warns(DriftlawWarning, match="infinite logits for 2 of 10 images. They were left out of the update"):
        output = adapter.step(with_two_bad_images(0, "black")[0])
    assert output.diagnostics["entropy"].isfinite()


@pytest.mark.small_batches
@pytest.mark.filterwarnings("ignore::driftlaw.errors.DriftlawWarning")
def test_small_batches_with_such_a_frame_keep_their_running_statistics():
    adapter = driftlaw.adapt(StandardiseEachImage(), "tent", window=16)
    other = driftlaw.adapt(StandardiseEachImage(), "tent", window=16)
    for index in range(4):
        spoiled, good_images, good = with_two_bad_images(index, "black")
        assert torch.equal(adapter(spoiled)[good], other(good_images))
    assert adapter.steps == other.steps == 2
