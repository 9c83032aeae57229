"""An update takes place completely or not at all."""

import pytest
import torch

from driftlaw.base import StepOutput
from driftlaw.errors import DriftlawWarning
from driftlaw.guard.transaction import PendingFlags, TensorCopies, Transaction, changing_tensors, keep_or_restore
from driftlaw.methods import list_methods
from driftlaw.testing.fixtures import MethodUnderTest, make_images
from driftlaw.testing.snapshots import attributes_of, differences, state_of


class Interrupted(BaseException):
    """Raised in the middle of a step, as KeyboardInterrupt is."""


@pytest.mark.parametrize(
    ("method", "error"),
    [(method, Interrupted) for method in list_methods()] + [("law", torch.OutOfMemoryError), ("law", ValueError)],
)
@pytest.mark.parametrize("steps", [0, 2])
def test_an_exception_after_the_update_leaves_nothing_changed(method, steps, error):
    adapter = MethodUnderTest.create(method).adapter_after(steps)
    before = state_of(adapter), attributes_of(adapter)
    update = adapter.update

    def failing(images, plan):
        update(images, plan)
        raise error("stop")

    adapter.update = failing
    with pytest.raises(error):
        adapter(make_images(9))
    del adapter.update
    assert not differences(before[0], state_of(adapter))
    assert not differences(before[1], attributes_of(adapter))
    assert all(value.grad is None for value in adapter.parameters())


@pytest.mark.parametrize("method", [name for name in list_methods() if name not in ("source", "norm", "lame")])
def test_an_update_that_is_not_finite_is_undone(method):
    adapter = MethodUnderTest.create(method).adapter_after(2)
    before = {name: value.clone() for name, value in changing_tensors(adapter).items()}
    update = adapter.update

    def poisoned(images, plan):
        output = update(images, plan)
        with torch.no_grad():
            adapter.trainable_parameters()[0].fill_(torch.nan)
        return output

    adapter.update = poisoned
    with pytest.warns(DriftlawWarning, match="An update was not finite and was undone"):
        assert adapter(make_images(9)).isfinite().all()
    assert not differences(before, changing_tensors(adapter))


def judged(transaction, adapter, change, logits=None):
    """Run an update that adds ``change`` to the first trainable tensor; returns whether it was kept."""

    def update():
        with torch.no_grad():
            adapter.trainable_parameters()[0].add_(change)
        return StepOutput(torch.zeros(2, 4) if logits is None else logits)

    return bool(transaction.run(adapter, update)[1])


def test_an_update_larger_than_the_limit_is_undone():
    adapter = MethodUnderTest.create("tent").adapter()
    size = torch.cat([value.flatten() for value in adapter.trainable_parameters()]).norm().item()
    count = adapter.trainable_parameters()[0].numel()
    before = adapter.trainable_parameters()[0].clone()
    assert not judged(Transaction(0.1), adapter, 0.11 * size / count**0.5)
    assert torch.equal(adapter.trainable_parameters()[0], before)
    assert judged(Transaction(0.1), adapter, 0.09 * size / count**0.5)
    assert not torch.equal(adapter.trainable_parameters()[0], before)


def test_logits_that_are_not_finite_undo_the_update():
    adapter = MethodUnderTest.create("tent").adapter()
    assert not judged(Transaction(), adapter, 0.1, torch.full((2, 4), torch.nan))


def test_a_scale_shortens_the_update():
    adapter = MethodUnderTest.create("tent").adapter()
    before = adapter.trainable_parameters()[0].clone()
    transaction = Transaction()
    transaction.set_scale(0.25)
    judged(transaction, adapter, 1.0)
    torch.testing.assert_close(adapter.trainable_parameters()[0], before + 0.25)
    transaction.set_scale(0.5)
    judged(transaction, adapter, 1.0)
    torch.testing.assert_close(adapter.trainable_parameters()[0], before + 0.75)


@pytest.mark.parametrize("keep", [True, False])
def test_values_of_every_dtype_are_kept_or_restored_without_reading_the_flag(keep):
    """A GPU runs this function inside a captured step."""
    values = {str(dtype): torch.tensor([1, 0, 1]).to(dtype) for dtype in (torch.bool, torch.int64, torch.uint8)}
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        values[str(dtype)] = torch.tensor([torch.nan, -torch.inf, 3.5]).to(dtype)
    values |= {"scalar": torch.tensor(-2.0), "empty": torch.empty(0), "new": torch.full((2,), torch.nan)}
    values["channels last"] = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    before = {name: torch.ones_like(value) for name, value in values.items() if name != "new"}
    expected = {name: value.clone() if keep else before.get(name, torch.zeros(2)) for name, value in values.items()}
    keep_or_restore(values, before, torch.tensor(keep))
    assert not differences(expected, values)


def test_tensors_without_a_copy_become_zero_and_other_shapes_are_restored():
    copies, value = TensorCopies(), torch.arange(3.0)
    copies.save({"a": value})
    value.resize_(5).fill_(7)
    new = torch.ones(2)
    copies.restore({"a": value, "b": new})
    assert value.tolist() == [0, 1, 2]
    assert new.tolist() == [0, 0]


def test_flags_are_returned_once_in_order():
    flags = PendingFlags()
    flags.add(torch.tensor(True))
    flags.add(torch.tensor(False))
    assert flags.take() == [True, False]
    assert flags.take() == []
