"""Lanes of a step: threads with half of the cores each, errors and settings that reach across them."""

import threading
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.profiler import profile
from torch.utils.flop_counter import FlopCounterMode

import driftlaw
from driftlaw.execution.threads import _workers, can_have_lanes, open_lanes, twin
from driftlaw.profiling import count_flops
from tests.execution.test_graphs import Flattening, batches, network


class Noting(nn.Module):
    """Writes down on itself what passes through, and reads it again."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.BatchNorm2d(3)

    def forward(self, images: Tensor) -> Tensor:
        self.noted = images
        return self.inner(images) + self.noted


def test_each_lane_has_half_of_the_threads_and_the_caller_keeps_all(two_threads):
    with open_lanes() as lanes:
        counts = [lane.do(torch.get_num_threads) for lane in lanes]
        names = [lane.do(threading.get_ident) for lane in lanes]
    assert [count.result() for count in counts] == [1, 1]
    assert len({threading.get_ident(), *(name.result() for name in names)}) == 3
    assert torch.get_num_threads() == 2


def test_a_third_lane_has_as_many_threads_as_the_others(two_threads):
    with open_lanes(3) as lanes:
        counts = [lane.do(torch.get_num_threads) for lane in lanes]
    assert [count.result() for count in counts] == [1, 1, 1]


def test_two_cores_have_a_third_lane_where_passes_are_compiled(two_threads):
    adapter = driftlaw.adapt(network(), "law")
    assert not adapter.has_third_lane()
    adapter._compiled = True
    assert adapter.has_third_lane()
    torch.set_num_threads(4)
    assert not adapter.has_third_lane()


def test_a_lane_waits_for_what_the_other_is_at_work_on(two_threads):
    with open_lanes() as (one, other):
        first = one.do(torch.ones, 3)
        second = other.do(torch.add, first, 1)
        third = one.do(torch.mul, first, second)
    assert third.result().tolist() == [2, 2, 2]


def test_an_error_comes_out_where_the_work_is_asked_for_and_reaches_what_hangs_on_it(two_threads):
    with open_lanes() as (one, other):
        bad = one.do(torch.ones(2).view, 3)
        worse = other.do(torch.add, bad, 1)
        good = other.do(torch.ones, 1)
    for work in (bad, worse):
        with pytest.raises(RuntimeError, match="shape"):
            work.result()
    assert good.result().item() == 1


def test_nothing_runs_on_behind_an_error(two_threads):
    go, done = threading.Event(), []

    def slow() -> None:
        go.wait(10)
        done.append(True)

    def fail() -> None:
        with open_lanes() as (one, _):
            one.do(slow)
            go.set()
            raise ValueError("here")

    with pytest.raises(ValueError, match="here"):
        fail()
    assert done


def test_a_lane_has_the_autocast_of_the_caller(two_threads):
    with torch.autocast("cpu", dtype=torch.float16), open_lanes() as (one, _):
        found = one.do(lambda: (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")))
    assert found.result() == (True, torch.float16)
    with open_lanes() as (one, _):
        assert not one.do(torch.is_autocast_enabled, "cpu").result()


def test_another_process_or_number_of_threads_has_lanes_of_its_own(two_threads):
    assert _workers(1, 2) is _workers(1, 2)
    assert _workers(1, 2) is not _workers(2, 2)
    assert torch.get_num_threads() == 2


def test_there_are_lanes_where_threads_can_be_halved_and_nobody_watches_one_of_them(two_threads):
    assert can_have_lanes()
    with FlopCounterMode(display=False):
        assert not can_have_lanes()
    with torch.device("cpu"):
        assert not can_have_lanes()
    with profile():
        assert not can_have_lanes()
    torch.set_num_threads(1)
    assert not can_have_lanes()


def test_a_twin_has_the_same_tensors_and_notes_of_its_own():
    model = nn.Sequential(Noting(), Noting())
    other = twin(model)
    own, others = dict(model.named_parameters()), dict(other.named_parameters())
    assert all(own[name] is others[name] for name in own)
    assert all(a is b for a, b in zip(model.buffers(), other.buffers(), strict=True))
    images = torch.rand(4, 3, 2, 2)
    assert torch.equal(model(images), other(images))
    model(images + 1)
    assert torch.equal(other[0].noted, images)


def test_what_is_swapped_on_a_network_for_a_while_is_not_on_its_twin():
    model = nn.Sequential(nn.BatchNorm1d(2))
    other = twin(model)
    model[0].running_mean = torch.ones(2)
    model[0].eval()
    assert other[0].running_mean.tolist() == [0, 0]
    assert other[0].training


@pytest.mark.parametrize("channels_last", ["auto", "off"])
def test_side_by_side_and_one_after_the_other_give_the_same_but_for_rounding(two_threads, channels_last):
    cheaper = {"fisher_every": 3, "fisher_settling": 2, "skip_share": 0.5, "channels_last": channels_last}
    beside, after = (driftlaw.adapt(network(), "law", overlap=overlap, **cheaper) for overlap in (True, False))
    images = batches(6)
    assert beside.has_lanes(images[0])
    assert not after.has_lanes(images[0])
    for batch in images:
        torch.testing.assert_close(beside(batch), after(batch), rtol=1e-4, atol=1e-4)


def test_a_stream_answered_twice_in_lanes_has_the_same_bits(two_threads):
    first, second = (driftlaw.adapt(network(), "law") for _ in range(2))
    for batch in batches(4):
        assert torch.equal(first(batch), second(batch))


def test_a_network_that_needs_contiguous_maps_is_found_out_in_lanes_too(two_threads):
    torch.manual_seed(0)
    model = Flattening()
    free, bound = driftlaw.adapt(model, "law"), driftlaw.adapt(model, "law", channels_last="off")
    for images in batches(3):
        assert torch.equal(free(images), bound(images))
    assert not free.execution_info()["channels_last"]


def test_as_written_there_are_no_lanes_and_counters_see_both_passes(two_threads):
    adapter, (images,) = driftlaw.adapt(network(), "law"), batches(1)
    with adapter.eager():
        assert not adapter.has_lanes(images)
    assert adapter.has_lanes(images)
    counted = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        _, operations = count_flops(partial(adapter, images))
        counted.append(operations)
    assert counted[0] == counted[1] > 0


def test_a_gpu_has_no_lanes(two_threads):
    (images,) = batches(1)
    assert not driftlaw.adapt(network(), "law").has_lanes(images.to("meta"))


def test_a_lane_has_the_settings_that_the_caller_gave_compilers(two_threads):
    import torch._functorch.config as settings

    with settings.patch(max_dist_from_bw=7), open_lanes() as (one, _):
        found = one.do(lambda: settings.max_dist_from_bw)
    assert found.result() == 7
