"""The plain LAW and TENT answer and learn as ours do, step by step, in float64."""

from __future__ import annotations

import copy
import importlib.util
from pathlib import Path

import pytest
import torch

import driftlaw
from driftlaw.models import build_model

FOLDER = Path(__file__).resolve().parent.parent.parent / "benchmarks"
STEPS = 5


def load(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


plain_law, plain_tent = load("plain_law"), load("plain_tent")


@pytest.fixture
def network():
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return build_model("wrn_10_1", num_classes=10).double().eval()


def batches(count):
    generator = torch.Generator().manual_seed(1)
    return [torch.rand(8, 3, 16, 16, generator=generator, dtype=torch.float64) for _ in range(count)]


def assert_same_steps(adapter, plain):
    for images in batches(STEPS):
        ours, theirs = adapter(images), plain.step(images)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-8)
    for name, value in plain.model.named_parameters():
        torch.testing.assert_close(adapter.model.get_parameter(name).data, value.data, rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    "settings",
    [{}, {"learning_rate": 5e-5, "tau": 0.6, "consistency_weight": 1.0}, {"tau": 1.3, "consistency_weight": 10.0}],
)
def test_the_plain_law_takes_the_same_steps_as_ours(network, settings):
    adapter = driftlaw.adapt(network, "law", seed=11, **settings)
    assert_same_steps(adapter, plain_law.PlainLaw(copy.deepcopy(network), seed=11, **settings))


def test_the_plain_tent_takes_the_same_steps_as_ours(network):
    adapter = driftlaw.adapt(network, "tent")
    assert_same_steps(adapter, plain_tent.PlainTent(copy.deepcopy(network)))


def test_the_plain_fisher_sums_are_as_large_as_the_network(network):
    plain = plain_law.PlainLaw(copy.deepcopy(network))
    plain.step(batches(1)[0])
    assert [total.shape for total in plain.fisher] == [value.shape for value in plain.parameters]
    assert all(bool((total >= 0).all()) for total in plain.fisher)
    assert sum(float(total.data.sum()) for total in plain.fisher) > 0


def test_the_plain_law_leaves_the_head_alone(network):
    plain = plain_law.PlainLaw(copy.deepcopy(network))
    for images in batches(2):
        plain.step(images)
    assert torch.equal(plain.model.head.weight, network.head.weight)
    assert not torch.equal(plain.model.conv.weight, network.conv.weight)


@pytest.mark.parametrize("name", ["plain_law", "plain_tent"])
def test_no_adapter_stands_behind_a_plain_reference(name):
    text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    assert [line for line in text.splitlines() if "driftlaw" in line and "import" in line] == (
        ["from driftlaw.components.augment import AugmentParams, augment"] if name == "plain_law" else []
    )


def test_the_errors_of_the_plain_references_are_ours():
    errors = load("errors")
    record = errors.compare(errors.read_arguments(["embedded", "--limit", "10", "--device", "cpu"]))
    found = {row["label"]: row["error"] for row in record["rows"]}
    assert list(found) == ["plain tent", "tent, float32", "tent", "plain law", "law, float32", "law"]
    assert found["tent, float32"] == pytest.approx(found["plain tent"], abs=2)
    assert found["law, float32"] == pytest.approx(found["plain law"], abs=2)
