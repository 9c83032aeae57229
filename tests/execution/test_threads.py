"""Thread engine: threads with half of torch's threads each, and errors and settings that cross them."""

import threading

import pytest
import torch
from torch import Tensor, nn
from torch.profiler import profile
from torch.utils.flop_counter import FlopCounterMode

import driftlaw
from driftlaw.execution.threads import _workers, can_use_threads, open_threads, shallow_clone
from tests.execution.networks import batches, network


class StoresInput(nn.Module):
    """Stores its input on itself, and reads it again."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.BatchNorm2d(3)

    def forward(self, images: Tensor) -> Tensor:
        self.stored = images
        return self.inner(images) + self.stored


def test_each_thread_has_half_of_torchs_threads_and_the_caller_keeps_all(two_threads):
    with open_threads() as threads:
        counts = [thread.submit(torch.get_num_threads) for thread in threads]
        names = [thread.submit(threading.get_ident) for thread in threads]
    assert [count.result() for count in counts] == [1, 1]
    assert len({threading.get_ident(), *(name.result() for name in names)}) == 3
    assert torch.get_num_threads() == 2


def test_a_third_thread_has_as_many_of_torchs_threads_as_the_others(two_threads):
    with open_threads(3) as threads:
        counts = [thread.submit(torch.get_num_threads) for thread in threads]
    assert [count.result() for count in counts] == [1, 1, 1]


def test_a_thread_waits_for_results_of_another(two_threads):
    with open_threads() as (one, other):
        first = one.submit(torch.ones, 3)
        second = other.submit(torch.add, first, 1)
        third = one.submit(torch.mul, first, second)
    assert third.result().tolist() == [2, 2, 2]


def test_an_error_is_raised_by_the_result_and_by_results_that_depend_on_it(two_threads):
    with open_threads() as (one, other):
        bad = one.submit(torch.ones(2).view, 3)
        worse = other.submit(torch.add, bad, 1)
        good = other.submit(torch.ones, 1)
    for work in (bad, worse):
        with pytest.raises(RuntimeError, match="shape"):
            work.result()
    assert good.result().item() == 1


def test_all_calls_have_ended_after_an_error(two_threads):
    go, done = threading.Event(), []

    def slow() -> None:
        go.wait(60)
        done.append(True)

    def fail() -> None:
        with open_threads() as (one, _):
            one.submit(slow)
            go.set()
            raise ValueError("here")

    with pytest.raises(ValueError, match="here"):
        fail()
    assert done


def test_a_thread_has_the_autocast_of_the_caller(two_threads):
    with torch.autocast("cpu", dtype=torch.float16), open_threads() as (one, _):
        found = one.submit(lambda: (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")))
    assert found.result() == (True, torch.float16)
    with open_threads() as (one, _):
        assert not one.submit(torch.is_autocast_enabled, "cpu").result()


def test_another_process_or_number_of_threads_has_its_own_workers(two_threads):
    assert _workers(1, 2) is _workers(1, 2)
    assert _workers(1, 2) is not _workers(2, 2)
    assert torch.get_num_threads() == 2


def test_threads_are_used_if_they_can_be_halved_and_nothing_observes_one_of_them(two_threads):
    assert can_use_threads()
    with FlopCounterMode(display=False):
        assert not can_use_threads()
    with torch.device("cpu"):
        assert not can_use_threads()
    with profile():
        assert not can_use_threads()
    torch.set_num_threads(1)
    assert not can_use_threads()


def test_a_shallow_clone_shares_tensors_and_has_its_own_attributes():
    model = nn.Sequential(StoresInput(), StoresInput())
    other = shallow_clone(model)
    own, others = dict(model.named_parameters()), dict(other.named_parameters())
    assert all(own[name] is others[name] for name in own)
    assert all(a is b for a, b in zip(model.buffers(), other.buffers(), strict=True))
    images = torch.rand(4, 3, 2, 2)
    assert torch.equal(model(images), other(images))
    model(images + 1)
    assert torch.equal(other[0].stored, images)


def test_what_is_replaced_on_a_network_is_not_replaced_on_its_clone():
    model = nn.Sequential(nn.BatchNorm1d(2))
    other = shallow_clone(model)
    model[0].running_mean = torch.ones(2)
    model[0].eval()
    assert other[0].running_mean.tolist() == [0, 0]
    assert other[0].training


@pytest.mark.parametrize("channels_last", ["on", "off"])
def test_threads_and_sequential_passes_give_the_same_logits_up_to_rounding(two_threads, channels_last):
    sparse = {"fisher_every": 3, "fisher_settling": 2, "skip_share": 0.5, "channels_last": channels_last}
    threads, one = (driftlaw.adapt(network(torch.float64), "law", overlap=each, **sparse) for each in (True, False))
    images = batches(6, dtype=torch.float64)
    assert threads._executor.uses_threads(images[0])
    assert not one._executor.uses_threads(images[0])
    for batch in images:  # a step amplifies a rounding error of 1e-16 in a gradient by up to η/ε = 1e5
        torch.testing.assert_close(threads(batch), one(batch), rtol=0, atol=1e-9)
        with pytest.warns(UserWarning, match="other settings: overlap"):
            one.load_state_dict(threads.state_dict())


def test_the_same_stream_gives_the_same_bits_twice(two_threads):
    first, second = (driftlaw.adapt(network(), "law") for _ in range(2))
    for batch in batches(4):
        assert torch.equal(first(batch), second(batch))


def test_a_thread_has_the_compiler_settings_of_the_caller(two_threads):
    import torch._functorch.config as settings

    with settings.patch(max_dist_from_bw=7), open_threads() as (one, _):
        found = one.submit(lambda: settings.max_dist_from_bw)
    assert found.result() == 7
