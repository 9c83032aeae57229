"""A training step as one CUDA graph."""

import contextlib

import pytest
import torch

from driftlaw.training import capture
from driftlaw.training.capture import EAGER_STEPS, Replay

GPU = torch.device("cuda")


class Stream:
    """Stands for a stream of a GPU that is not there."""

    def __init__(self, device):
        self.device = device


class Captured:
    """Stands for a graph: what it replays is the step on the tensors of the first capture, filled anew."""

    made = 0

    def __init__(self, step, images, labels, stream):
        Captured.made += 1
        self.step, self.images, self.labels = step, images.clone(), labels.clone()

    def replay(self, images, labels):
        self.images.copy_(images)
        self.labels.copy_(labels)
        return self.step(self.images, self.labels).clone()


@pytest.fixture
def on_no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(capture, "_Captured", Captured)
    monkeypatch.setattr(Captured, "made", 0)


def run_steps(replay, count):
    for value in range(count):
        replay(*batch(4, value))


def batch(count, value):
    return torch.full((count, 2), float(value)), torch.zeros(count, dtype=torch.long)


def test_after_a_few_steps_as_written_batches_of_the_first_shape_are_replayed(on_no_gpu):
    addresses = []

    def step(images, labels):
        addresses.append((len(images), images.data_ptr()))
        return images.sum()

    replay = Replay(step, GPU, must=True)
    batches = [batch(4, value) for value in range(EAGER_STEPS + 3)] + [batch(3, 7), batch(4, 8)]
    losses = [float(replay(*each)) for each in batches]
    assert losses == [float(images.sum()) for images, _ in batches]
    own = [pointer == images.data_ptr() for (_, pointer), (images, _) in zip(addresses, batches, strict=True)]
    assert own == [True] * EAGER_STEPS + [False] * 3 + [True, False]
    assert len({pointer for (_, pointer), is_own in zip(addresses, own, strict=True) if not is_own}) == 1
    assert Captured.made == 1


class Unable(Captured):
    """A capture that fails."""

    def __init__(self, step, images, labels, stream):
        Captured.made += 1
        raise RuntimeError("operation not permitted when stream is capturing\nand so on")


def test_a_step_that_cannot_be_captured_is_told_once_and_runs_as_written_none_lost(on_no_gpu, monkeypatch):
    monkeypatch.setattr(capture, "_Captured", Unable)
    seen = []
    replay = Replay(lambda images, labels: seen.append(float(images[0, 0])) or images.sum(), GPU, must=False)
    with pytest.warns(UserWarning, match=r"cannot be a CUDA graph and runs as written \(operation not .* capturing\)"):
        run_steps(replay, EAGER_STEPS + 3)
    assert seen == list(range(EAGER_STEPS + 3))
    assert Captured.made == 1


def test_a_capture_that_must_be_raises(on_no_gpu, monkeypatch):
    monkeypatch.setattr(capture, "_Captured", Unable)
    replay = Replay(lambda images, labels: images.sum(), GPU, must=True)
    with pytest.raises(RuntimeError, match="not permitted"):
        run_steps(replay, EAGER_STEPS + 1)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("compiled", [False, True])
def test_replayed_steps_are_the_steps_as_written(compiled):
    def trained(captures):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 3)).to(GPU)
        rate = torch.zeros((), device=GPU)
        optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9, nesterov=True, fused=True)
        loss_of = torch.compile(_loss_of) if compiled else _loss_of

        def step(images, labels):
            optimizer.zero_grad(set_to_none=True)
            loss = loss_of(model, images, labels)
            loss.backward()
            optimizer.step()
            return loss.detach()

        replay = Replay(step, GPU, must=True) if captures else None
        losses = []
        with replay.on_stream() if replay else contextlib.nullcontext():
            for number, count in enumerate([16] * 8 + [5] + [16] * 3):
                rate.fill_(0.1 / (1 + number))
                images = torch.randn(count, 8, generator=torch.Generator().manual_seed(number)).to(GPU)
                losses.append((replay or step)(images, torch.arange(count, device=GPU) % 3))
        return torch.stack(losses), [value.clone() for value in model.state_dict().values()]

    for found, expected in zip(trained(True), trained(False), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def _loss_of(model, images, labels):
    return torch.nn.functional.cross_entropy(model(images), labels)
