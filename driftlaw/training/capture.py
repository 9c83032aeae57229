"""A training step as one CUDA graph: its kernels are recorded once and then launched at once, without the host."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from driftlaw.errors import warn_user

EAGER_STEPS = 3  # before the capture: kernels are compiled and chosen, the optimizer makes its buffers

Step = Callable[[Tensor, Tensor], Tensor]


class Replay:
    """A step (images, labels) → loss, run as written a few times, then captured and replayed.

    The step must keep its state in place on the device, read what changes from one step to the next from there, and
    never wait for the device. Batches of another shape than the first one's are run as written.

    Args:
        step: what to run; where it starts, no gradient of an earlier step may be needed any more.
        device: a GPU.
        must: whether a step that cannot be captured is an error, and not only worth a warning.
    """

    def __init__(self, step: Step, device: torch.device, *, must: bool) -> None:
        self.step, self.must = step, must
        # One stream for all steps: gradients are added up on the stream that a parameter was first used on, and a
        # capture may not reach for another one.
        self.stream = torch.cuda.Stream(device)
        self.shape: torch.Size | None = None
        self.eager_steps = 0
        self.captured: _Captured | None = None
        self.given_up = False

    @contextmanager
    def on_stream(self) -> Iterator[None]:
        """Inside, work goes to the stream of the steps, after all that was asked for before; the block waits for it."""
        around = torch.cuda.current_stream(self.stream.device)
        self.stream.wait_stream(around)
        with torch.cuda.stream(self.stream):
            yield
        around.wait_stream(self.stream)

    def __call__(self, images: Tensor, labels: Tensor) -> Tensor:
        """Run one step on images and labels; return its loss."""
        self.shape = self.shape or images.shape
        if self.given_up or images.shape != self.shape:
            return self.step(images, labels)
        if self.captured is None and self.eager_steps < EAGER_STEPS:
            self.eager_steps += 1
            return self.step(images, labels)
        if self.captured is None:
            try:
                self.captured = _Captured(self.step, images, labels, self.stream)
            except RuntimeError as error:
                if self.must:
                    raise
                self._give_up(error)
                return self.step(images, labels)  # nothing of a capture is run: this step is still to be done
        return self.captured.replay(images, labels)

    def _give_up(self, error: RuntimeError) -> None:
        self.given_up = True
        reason = str(error).partition("\n")[0]
        warn_user(f"the training step cannot be a CUDA graph and runs as written ({reason})")


class _Captured:
    """The graph, the tensors that it reads a batch from and the one that it leaves the loss in."""

    def __init__(self, step: Step, images: Tensor, labels: Tensor, stream: torch.cuda.Stream) -> None:
        self.images, self.labels = images.clone(), labels.clone()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=stream):
            self.loss = step(self.images, self.labels)

    def replay(self, images: Tensor, labels: Tensor) -> Tensor:
        self.images.copy_(images)
        self.labels.copy_(labels)
        self.graph.replay()
        return self.loss.clone()
