"""FLOPs of a step and of a forward pass, counted without changing the adapter."""

import torch
from torch import Tensor

from driftlaw.base import Adapter
from driftlaw.profiling import count_flops
from driftlaw.records.jsonl import Line


def count_forward(adapter: Adapter, images: Tensor) -> tuple[Tensor, int]:
    """Return the logits of an adapter's model and the FLOPs of the forward pass."""
    unit = adapter.inputs.to_unit(images, adapter.model, check_values=False)
    with torch.no_grad(), adapter.eager():
        return count_flops(lambda: adapter.model(unit))


def count_cost(adapter: Adapter, images: Tensor, *, is_first: bool) -> Line:
    """Count the FLOPs of one step and of one forward pass of the model, and restore the adapter's state.

    If small batches are collected for an update, it is the mean over all steps for one update.

    Args:
        adapter: the adapter.
        images: the batch.
        is_first: whether it is the first batch of a stream. Then counting starts at the second step, because the first
            may include work that is done once, such as a warm-up on training data.
    """
    _, forward = count_forward(adapter, images)
    before = adapter.state_dict()
    try:
        with adapter.eager():
            if is_first:
                adapter.step(images)
            steps = [count_flops(lambda: adapter.step(images))[1] for _ in range(adapter.batches_per_update(images))]
    finally:
        adapter.load_state_dict(before)
    count = len(images)
    return {"step_flops_per_image": sum(steps) // len(steps) // count, "forward_flops_per_image": forward // count}
