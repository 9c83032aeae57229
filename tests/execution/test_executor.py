"""Executor: settings, the choice of an engine, eager mode, and what a record says about execution."""

import copy
import pickle
from functools import partial

import pytest
import torch

import driftlaw
from driftlaw.base import ExecutionSettings
from driftlaw.execution.threads import ThreadEngine
from driftlaw.execution.two_pass import recompute, sequential
from driftlaw.methods import registered_methods
from driftlaw.profiling import count_flops
from tests.execution.networks import batches, network


def chosen_engine(adapter, images):
    executor = adapter._executor
    return executor.choose_engine(adapter.model, adapter.trainable_names, images, adapter.independent_passes)


def test_execution_info_names_precision_format_capture_and_compilation():
    info = driftlaw.adapt(network(), "law").execution_info()
    assert info == {"precision": "float32", "channels_last": True, "capture": False, "compiled": False}
    assert driftlaw.adapt(network(torch.float64), "law").execution_info()["precision"] == "float64"


def test_settings_are_written_only_if_they_differ_from_the_default():
    assert ExecutionSettings().model_dump() == {}
    assert ExecutionSettings(precision="float32").model_dump() == {"precision": "float32"}


def test_every_method_has_the_execution_settings():
    for kind in registered_methods().values():
        assert set(ExecutionSettings.model_fields) <= set(kind.Config.model_fields), kind.name


def test_the_engine_follows_threads_and_settings(two_threads):
    (images,) = batches(1)
    engine = chosen_engine(driftlaw.adapt(network(), "law"), images)
    assert isinstance(engine, ThreadEngine)
    assert engine.count == 2
    assert chosen_engine(driftlaw.adapt(network(), "law", recompute=True), images) is recompute
    assert chosen_engine(driftlaw.adapt(network(), "law", overlap=False), images) is sequential
    assert chosen_engine(driftlaw.adapt(network(), "law", fisher="per_sample"), images) is sequential
    torch.set_num_threads(1)
    assert chosen_engine(driftlaw.adapt(network(), "law"), images) is sequential


def test_counters_see_both_passes_whatever_the_engine(two_threads):
    adapter, (images,) = driftlaw.adapt(network(), "law"), batches(1)
    with adapter.eager():
        assert not adapter._executor.uses_threads(images)
    assert adapter._executor.uses_threads(images)
    adapter(images)  # the first step has one more pass, which shows whether logits are per pixel
    counts = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        counts.append(count_flops(partial(adapter, images))[1])
    assert counts[0] == counts[1] > 0


def test_captured_steps_are_neither_copied_nor_pickled():
    adapter = driftlaw.adapt(network(), "law", capture="on")
    adapter._executor.graphs.graphs["step",] = "a captured step"
    for other in (copy.deepcopy(adapter), pickle.loads(pickle.dumps(adapter))):
        assert other._executor.graphs.graphs == {}
        assert other._executor.graphs.mode == "on"


@pytest.mark.parametrize("seed", [0, 1])
def test_a_forced_engine_replaces_the_automatic_choice(two_threads, seed):
    automatic, forced = (driftlaw.adapt(network(torch.float64), "law", seed=seed) for _ in range(2))
    calls = []

    def counting(passes):
        calls.append(passes)
        return ThreadEngine()(passes)

    forced._executor.engine = counting
    for images in batches(3, dtype=torch.float64):
        assert torch.equal(automatic(images), forced(images))
    assert len(calls) == 3
