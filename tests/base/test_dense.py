"""Adapters of networks with logits per pixel: types of outputs, small batches, guard, and what is refused."""

from collections import OrderedDict
from dataclasses import dataclass

import pytest
import torch
from torch import nn

import driftlaw
from driftlaw.errors import UsageError
from driftlaw.testing.fixtures import make_images, tiny_dense_model
from driftlaw.testing.snapshots import differences, state_of


class Wrapped(nn.Module):
    """Applies a function to the logits of the small network."""

    def __init__(self, wrap):
        super().__init__()
        self.network, self.wrap, self.calls = tiny_dense_model(), wrap, 0

    def forward(self, images):
        self.calls += 1
        return self.wrap(self.network(images))


@dataclass
class Output:
    loss: torch.Tensor | None = None
    logits: torch.Tensor | None = None


@pytest.mark.parametrize(
    ("wrap", "unwrap"),
    [
        (lambda logits: OrderedDict(out=logits, aux=2 * logits), lambda output: output["out"]),
        (lambda logits: Output(logits=logits), lambda output: output.logits),
        (lambda logits: (logits, [logits]), lambda output: output[0]),
    ],
    ids=["torchvision", "Hugging Face", "tuple"],
)
def test_the_output_keeps_its_type_and_resolution(wrap, unwrap):
    images, adapter = make_images(), driftlaw.adapt(Wrapped(wrap), "tent", statistics="batch")
    expected = driftlaw.adapt(tiny_dense_model(), "tent", statistics="batch")(images)
    output = adapter(images)
    assert type(output) is type(wrap(expected))
    assert torch.equal(unwrap(output), expected)
    assert expected.shape == (8, 4, 8, 8)


@pytest.mark.small_batches
@pytest.mark.parametrize("statistics", ["auto", "batch", "window", "mixed", "adaptive"])
@pytest.mark.parametrize("method", ["norm", "law", "law_plus"])
def test_batches_of_few_frames_work_with_all_statistics(method, statistics):
    window = {"window": 8} if statistics in ("auto", "window") else {}
    adapter = driftlaw.adapt(tiny_dense_model(), method, statistics=statistics, **window)
    for index, count in enumerate((1, 1, 2, 4, 8, 1, 8)):
        images = make_images(index, count=count)
        assert adapter.predict(images).shape == (count, 4, 8, 8)
        assert adapter(images).shape == (count, 4, 8, 8)
    assert adapter.steps == 7
    assert adapter.summary()["images"] == 25


@pytest.mark.small_batches
def test_auto_is_adaptive_for_few_frames_and_after_loading_a_state():
    adapters = {kind: driftlaw.adapt(tiny_dense_model(), "law", statistics=kind) for kind in ("auto", "adaptive")}
    for index, count in enumerate((1, 4, 2)):
        images = make_images(index, count=count)
        predicted = [adapter.predict(images) for adapter in adapters.values()]
        assert torch.equal(*predicted)
        assert torch.equal(*[adapter(images) for adapter in adapters.values()])
    fresh = driftlaw.adapt(tiny_dense_model(), "law", statistics="auto")
    fresh.load_state_dict(adapters["auto"].state_dict())
    assert torch.equal(*[adapter(make_images(3, count=2)) for adapter in (fresh, adapters["adaptive"])])
    assert fresh.window.filled == 0  # frames are not collected


def test_images_may_change_their_size_between_batches():
    adapter = driftlaw.adapt(tiny_dense_model(), "law", statistics="window", window=12, guard=True)
    sizes = [(16, 16), (10, 14), (16, 16), (12, 12)]
    shapes = [adapter(make_images(index)[:, :, : size[0], : size[1]]).shape[2:] for index, size in enumerate(sizes)]
    assert shapes == [(8, 8), (5, 7), (8, 8), (6, 6)]


@pytest.mark.parametrize(
    ("wrap", "message"),
    [
        (lambda logits: logits[:, :1], r"one output per image or pixel"),
        (lambda logits: logits[..., 0], r"shape \(8, 4, 8\).*Expected logits, floats of shape \(n, classes\) or"),
        (lambda logits: logits[:, :, None], r"shape \(8, 4, 1, 8, 8\).*Expected logits"),
        (lambda logits: logits[..., :0], r"shape \(8, 4, 8, 0\).*Expected logits"),
        (lambda logits: logits.argmax(1), r"torch.int64.*Expected logits, floats"),
    ],
    ids=["one class", "(n, c, h)", "(n, c, d, h, w)", "no pixels", "label maps"],
)
def test_other_outputs_are_refused_and_nothing_changes(wrap, message):
    adapter = driftlaw.adapt(Wrapped(wrap), "law_plus", statistics="batch")
    before = state_of(adapter)
    for call in (adapter, adapter.predict):
        with pytest.raises(UsageError, match=message):
            call(make_images())
    assert differences(before, state_of(adapter)) == []


def test_a_network_that_changes_its_resolution_is_refused_and_nothing_changes():
    model = Wrapped(lambda logits: logits)
    adapter = driftlaw.adapt(model, "law", statistics="batch")
    adapter(make_images())
    adapter.model.wrap = lambda logits: logits[..., ::2]
    before = state_of(adapter)
    with pytest.raises(UsageError, match=r"logits of \(8, 4\) pixels for images of \(16, 16\), and earlier \(8, 8\)"):
        adapter(make_images(1))
    assert differences(before, state_of(adapter)) == []


@pytest.mark.parametrize("method", ["roid", "eta", "law_plus"])
def test_a_last_layer_that_does_not_return_the_logits_is_refused(method):
    adapter = driftlaw.adapt(Wrapped(lambda logits: logits[:, :3]), method, statistics="batch")
    before = state_of(adapter)
    with pytest.raises(UsageError, match="logits for 3 classes, but its last layer has 4 outputs"):
        adapter(make_images())
    assert differences(before, state_of(adapter)) == []


def test_a_frame_with_infinite_logits_is_left_out():
    class Spoiled(nn.Module):
        def __init__(self):
            super().__init__()
            self.network = tiny_dense_model()

        def forward(self, images):
            logits = self.network(images)
            is_bright = (images.amin((1, 2, 3)) > 0.9)[:, None, None, None]
            return torch.where(is_bright, torch.inf, logits)

    images = make_images()
    images[2] = 1.0
    adapter = driftlaw.adapt(Spoiled(), "tent", statistics="batch")
    with pytest.warns(UserWarning, match="logits for 1 of 8 images"):
        logits = adapter(images)
    assert logits.isfinite().flatten(1).all(1).tolist() == [index != 2 for index in range(8)]
    assert adapter.steps == 1


@pytest.mark.parametrize("method", ["law", "law_plus", "tent"])
def test_the_guard_checks_frames_and_saves_its_sample_of_pixels(method):
    settings = {"statistics": "batch", "guard": {"sample": 8, "check_images": 8}}
    adapter = driftlaw.adapt(tiny_dense_model(), method, **settings)
    for index in range(6):
        assert adapter(make_images(index, count=3)).shape == (3, 4, 8, 8)
    assert adapter.guard.images == 18
    other = driftlaw.adapt(tiny_dense_model(), method, **settings)
    other.load_state_dict(adapter.state_dict())
    assert torch.equal(adapter(make_images(7)), other(make_images(7)))
    assert adapter.guard.checks
    assert adapter.guard.checks == other.guard.checks
