from __future__ import annotations

import threading

import pytest
import torch

import driftlaw
from driftlaw.base import BatchStatsSettings, find_method
from driftlaw.errors import UsageError
from driftlaw.methods import list_methods
from driftlaw.testing.fixtures import SyntheticDataset, make_images, model_without_norm_layers, tiny_model
from driftlaw.testing.snapshots import differences

STREAMS = ("north", "south", "east")


def settings_of(method: str) -> dict[str, object]:
    kind = find_method(method)
    settings = {"statistics": "batch"} if issubclass(kind.Config, BatchStatsSettings) else {}
    settings |= {"memory_size": 64} if method == "adacontrast" else {}
    return settings | ({"train_data": SyntheticDataset()} if kind.needs_train_data else {})


def run_both(pool, adapters, rounds, count=8):
    """Use the streams in another order in every round, and compare each prediction with that of its own adapter."""
    for number in rounds:
        for index in range(len(adapters)):
            stream = list(adapters)[(number * index + number) % len(adapters)]
            images = make_images(10 * number + index, count=count)
            assert torch.equal(pool(images, stream=stream), adapters[stream](images)), (number, stream)
            images = make_images(1000 + index, count=count)
            assert torch.equal(pool.predict(images, stream=stream), adapters[stream].predict(images))


def assert_same_states(pool, adapters):
    for stream, expected in adapters.items():
        with pool.using(stream) as adapter:
            assert differences(expected.state_dict(), adapter.state_dict()) == []
            history, other = adapter._history, expected._history
            assert (history.count, history.images) == (other.count, other.images)
            assert differences([history.first, history.last], [other.first, other.last]) == []


@pytest.mark.parametrize("method", list_methods())
def test_predictions_and_states_are_those_of_separate_adapters(method, tmp_path):
    settings = settings_of(method)
    adapters = {stream: driftlaw.adapt(tiny_model(), method, **settings) for stream in STREAMS[:2]}
    pool = driftlaw.AdapterPool(tiny_model(), method, memory=0, host_memory=0, folder=tmp_path, **settings)
    run_both(pool, adapters, range(1, 3), count=4)
    assert pool.memory()["device"] == pool.memory()["host"] == 0
    assert_same_states(pool, adapters)


@pytest.mark.parametrize(("method", "memory"), [("tent", None), ("tent", 20_000), ("law", None), ("law", 0)])
def test_states_on_the_device_and_in_host_memory_are_restored_bit_for_bit(method, memory):
    adapters = {stream: driftlaw.adapt(tiny_model(), method, seed=3) for stream in (*STREAMS, "west")}
    pool = driftlaw.AdapterPool(tiny_model(), method, memory=memory, seed=3)
    run_both(pool, adapters, range(1, 4))
    assert_same_states(pool, adapters)


@pytest.mark.small_batches
@pytest.mark.parametrize("settings", [{"window": 6}, {"statistics": "window", "window": 6}, {"guard": True}])
@pytest.mark.parametrize("count", [1, 4])
def test_small_batches_are_collected_per_stream(settings, count):
    adapters = {stream: driftlaw.adapt(tiny_model(), "tent", **settings) for stream in STREAMS}
    pool = driftlaw.AdapterPool(tiny_model(), "tent", memory=0, **settings)
    run_both(pool, adapters, range(1, 8), count)
    assert_same_states(pool, adapters)


def test_each_stream_has_its_own_guard(tmp_path):
    guard = {"check_images": 8, "sample": 8, "min_agreement": 0.9}
    settings = {"guard": guard, "learning_rate": 0.3}
    adapters = {stream: driftlaw.adapt(tiny_model(), "tent", **settings) for stream in STREAMS}
    pool = driftlaw.AdapterPool(tiny_model(), "tent", memory=0, host_memory=0, folder=tmp_path, **settings)
    bad = torch.full((8, 3, 16, 16), 2.0)
    for number in range(8):
        for index, stream in enumerate(STREAMS):
            images = bad if number == 5 and index == 1 else make_images(number + index)
            expected = adapters[stream](images)
            assert torch.equal(pool(images, stream=stream).nan_to_num(-1), expected.nan_to_num(-1))
    assert_same_states(pool, adapters)
    assert adapters["south"].guard.counts["skip_image"] == 1
    assert sum(adapters["north"].guard.counts.values()) > 0
    for stream, expected in adapters.items():
        with pool.using(stream) as adapter:
            assert adapter.guard.counts == expected.guard.counts
            assert list(adapter.guard.events) == list(expected.guard.events)
            assert adapter.guard.step_events == []
            before = adapter.tensors_before_update()
            assert differences(before, expected.tensors_before_update()) == []


def test_sample_of_the_guard_keeps_its_order_if_only_some_images_are_bytes():
    settings = {"guard": {"sample": 64}, "statistics": "batch"}
    pool = driftlaw.AdapterPool(tiny_model(), "tent", memory=0, **settings)
    adapter = driftlaw.adapt(tiny_model(), "tent", **settings)
    for number in range(3):
        images = make_images(number, count=4)
        images = images if number else (images * 255).to(torch.uint8)
        adapter(images)
        for stream in "ab":
            pool(images, stream=stream)
    assert_same_states(pool, {"a": adapter})
    assert len(adapter.guard.sample) == 3


def test_recent_images_of_bytes_need_one_byte_per_value(tmp_path):
    images = (make_images() * 255).to(torch.uint8)
    pool = driftlaw.AdapterPool(tiny_model(), "tent", memory=0)
    adapter = driftlaw.adapt(tiny_model(), "tent")
    for number in range(3):
        for stream in STREAMS:
            logits = pool(images, stream=stream)
        assert torch.equal(logits, adapter(images)), number
    assert adapter.window.images.nbytes / 4 < pool.memory()["host"] / 2 < adapter.window.images.nbytes
    assert_same_states(pool, {"east": adapter})


def test_budgets_are_kept_and_least_recently_used_streams_move_first(tmp_path):
    size = driftlaw.AdapterPool(tiny_model(), "tent")
    for stream in "ab":
        size(make_images(), stream=stream)
    one = size.memory()["device"] + 100  # the number of digits in a state varies
    pool = driftlaw.AdapterPool(tiny_model(), "tent", memory=2 * one, host_memory=3 * one, folder=tmp_path)
    for number in range(30):
        pool(make_images(number), stream=f"camera {number % 10}")
        assert pool.memory()["device"] <= 2 * one
        assert pool.memory()["host"] <= 3 * one
    assert len(pool) == 10
    assert pool.streams() == [f"camera {number}" for number in range(10)]
    assert list(pool._tiers[0]) == ["camera 7", "camera 8"]
    assert list(pool._tiers[1])[-1] == "camera 6"
    assert pool.memory()["disk"] == sum(path.stat().st_size for path in tmp_path.glob("stream-*"))
    assert repr(pool).startswith("<AdapterPool: TENT, 10 streams; states: 2 on the device, ")


def test_frozen_tensors_are_not_part_of_a_stream():
    pool = driftlaw.AdapterPool(tiny_model(), "tent", statistics="batch")
    for stream in STREAMS:
        pool(make_images(), stream=stream)
    model = sum(value.nbytes for value in tiny_model().state_dict().values())
    assert pool.memory()["device"] < 2 * model
    assert pool.memory()["device"] / 2 < model


def test_budget_without_a_folder_is_an_error_that_loses_nothing():
    pool = driftlaw.AdapterPool(tiny_model(), "tent", memory=0, host_memory=0)
    adapter = driftlaw.adapt(tiny_model(), "tent")
    assert torch.equal(pool(make_images(0), stream="a"), adapter(make_images(0)))
    with pytest.raises(UsageError, match="Pass folder="):
        pool(make_images(0), stream="b")
    assert pool.streams() == ["a"]
    assert torch.equal(pool(make_images(1), stream="a"), adapter(make_images(1)))
    with pytest.raises(UsageError, match="has no folder"):
        pool.save()


def test_failed_step_changes_no_stream():
    pool, adapter = driftlaw.AdapterPool(tiny_model(), "tent", memory=0), driftlaw.adapt(tiny_model(), "tent")
    pool(make_images(0), stream="a")
    adapter(make_images(0))
    for stream in ("b", "a"):
        with pytest.raises(UsageError, match=r"expected \[0, 1\]"):
            pool(make_images(0) * 300, stream=stream)
    assert torch.equal(pool(make_images(1), stream="a"), adapter(make_images(1)))
    assert torch.equal(pool(make_images(0), stream="b"), driftlaw.adapt(tiny_model(), "tent")(make_images(0)))


def test_interrupted_switch_loses_no_state(monkeypatch):
    adapters = {stream: driftlaw.adapt(tiny_model(), "tent") for stream in STREAMS}
    pool = driftlaw.AdapterPool(tiny_model(), "tent", memory=0)
    run_both(pool, adapters, range(1, 3))

    def interrupt(*arguments):
        torch.nn.init.zeros_(pool._adapter.trainable_parameters()[0])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("driftlaw.pool.load_stream", interrupt)
        with pytest.raises(KeyboardInterrupt):
            pool(make_images(), stream=pool.streams()[0])
    run_both(pool, adapters, range(3, 5))
    assert_same_states(pool, adapters)


def test_reset_and_remove():
    pool = driftlaw.AdapterPool(tiny_model(), "tent", memory=0)
    for number in range(2):
        for stream in STREAMS:
            pool(make_images(number), stream=stream)
    for stream in ("east", "north"):  # the current one, and one in host memory
        pool.reset(stream)
        expected = driftlaw.adapt(tiny_model(), "tent")
        assert torch.equal(pool(make_images(7), stream=stream), expected(make_images(7)))
    pool.remove("north")
    pool.remove("south")
    assert "south" not in pool
    assert pool.streams() == ["east"]
    assert torch.equal(pool(make_images(7), stream="south"), driftlaw.adapt(tiny_model(), "tent")(make_images(7)))
    with pytest.raises(UsageError, match=r"no stream 'eas'\. Did you mean 'east'"):
        pool.remove("eas")
    with pytest.raises(UsageError, match="is 3"):
        pool.reset(3)


def test_stream_in_use_cannot_be_changed_from_inside():
    pool = driftlaw.AdapterPool(tiny_model(), "tent", memory=0)
    with pool.using("a") as adapter:
        adapter(make_images())
        assert torch.equal(pool.predict(make_images(), stream="a"), adapter.predict(make_images()))
        with pytest.raises(UsageError, match="Stream 'a' is in use"):
            pool(make_images(), stream="b")
        with pytest.raises(UsageError, match="Stream 'a' is in use"):
            pool.remove("a")
    assert pool(make_images(), stream="b").shape == (8, 4)


def test_method_and_model_without_changing_tensors():
    pool = driftlaw.AdapterPool(model_without_norm_layers(), "source", memory=0)
    expected = driftlaw.adapt(model_without_norm_layers(), "source")(make_images())
    for stream in "aba":
        assert torch.equal(pool(make_images(), stream=stream), expected)


def test_two_threads_use_different_streams():
    pool = driftlaw.AdapterPool(tiny_model(), "tent", memory=0)
    adapters = {stream: driftlaw.adapt(tiny_model(), "tent") for stream in STREAMS}
    failures = []

    def work(stream):
        for number in range(6):
            if not torch.equal(pool(make_images(number), stream=stream), adapters[stream](make_images(number))):
                failures.append((stream, number))

    threads = [threading.Thread(target=work, args=[stream]) for stream in STREAMS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(pool) == 3


def test_inference_mode_around_a_pool_is_harmless():
    pool, adapter = driftlaw.AdapterPool(tiny_model(), "law"), driftlaw.adapt(tiny_model(), "law")
    with torch.inference_mode():
        for number in range(3):
            for stream in "ab":
                logits = pool(make_images(number), stream=stream)
    assert torch.equal([adapter(make_images(number)) for number in range(3)][-1], logits)


def test_summary_covers_all_steps_of_a_stream():
    pool, adapter = driftlaw.AdapterPool(tiny_model(), "tent"), driftlaw.adapt(tiny_model(), "tent")
    for number in range(3):
        adapter(make_images(number))
        for stream in "ab":
            pool(make_images(number), stream=stream)
    expected = adapter.summary()
    del expected["source_agreement"], expected["compared_images"]
    with pool.using("a") as used:
        assert used.summary() == expected
        assert str(used.summary()) == str(expected)


@pytest.mark.parametrize("value", [-1, True, "much", 1.5, [1]])
@pytest.mark.parametrize("name", ["memory", "host_memory"])
def test_budget_that_is_no_number_of_bytes_is_refused(name, value):
    with pytest.raises(UsageError, match=rf"Invalid settings for AdapterPool:\n  - {name} = "):
        driftlaw.AdapterPool(tiny_model(), "tent", **{name: value})


def test_budget_may_have_a_unit():
    pool = driftlaw.AdapterPool(tiny_model(), "tent", memory="2 GB", host_memory="1.5 MiB")
    assert pool._limits == (2_000_000_000, 1_572_864)


def test_arguments_of_adapt_are_checked():
    with pytest.raises(UsageError, match="Unknown method"):
        driftlaw.AdapterPool(tiny_model(), "tend")
    with pytest.raises(UsageError, match="learning_rat"):
        driftlaw.AdapterPool(tiny_model(), "tent", learning_rat=1)
    with pytest.raises(UsageError, match="pass folder= to the pool"):
        driftlaw.AdapterPool(tiny_model(), "tent", guard={"snapshots": "somewhere"})


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        (7, "is 7"),
        (None, "is None"),
        ("", "Expected 1 to 200"),
        ("ä" * 40, "240"),
        ("a\n", "control"),
        ("\ud800", "control"),
    ],
)
def test_invalid_name_of_a_stream_is_refused(stream, message):
    pool = driftlaw.AdapterPool(tiny_model(), "tent")
    with pytest.raises(UsageError, match=message):
        pool(make_images(), stream=stream)
    assert len(pool) == 0
