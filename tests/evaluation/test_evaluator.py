"""The loop: what it writes, how it goes on after a kill, when it resets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import driftlaw
from driftlaw.base import Batch, Domain, Stream
from driftlaw.errors import UsageError
from driftlaw.evaluation.evaluator import run
from driftlaw.models import build_model
from driftlaw.records import read_record
from driftlaw.testing.fixtures import SyntheticDataset


class NoisyStream(Stream):
    """Three domains of noise and random labels, two batches each, the second one smaller."""

    num_classes = 4

    def __init__(self, *, labelled: bool = True, seed: int = 0) -> None:
        self.labelled, self.seed = labelled, seed

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.seed)
        for index in range(len(self)):
            count = 6 if index % 2 == 0 else 4
            images = torch.rand(count, 3, 16, 16, generator=generator)
            labels = torch.randint(4, (count,), generator=generator) if self.labelled else None
            yield Batch(images, labels, Domain("abc"[index // 2], 5), index, starts_domain=index % 2 == 0)

    def __len__(self) -> int:
        return 6

    def recipe(self) -> dict:
        return {"kind": "noise", "seed": self.seed}


@pytest.fixture
def network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return build_model("wrn_10_1", num_classes=4)


def without_timings(path: Path) -> list[dict]:
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    return [{key: value for key, value in line.items() if key != "timing"} for line in lines]


class Killed(BaseException):
    """Stands for a kill: no handler in the loop catches it."""


def kill_after(batches: int):
    def progress(line: dict) -> None:
        if line["batch"] + 1 == batches:
            raise Killed

    return progress


def test_the_record_counts_wrong_answers_by_domain(network, tmp_path):
    sink = tmp_path / "runs" / "one.jsonl"
    record = run(NoisyStream(), driftlaw.adapt(network, "source"), sink=sink)
    wrong = [int((network.eval()(b.images).argmax(1) != b.labels).sum()) for b in NoisyStream()]
    assert [line["wrong"] for line in record.batches] == wrong
    assert record.error_by_domain["b"] == pytest.approx(100 * sum(wrong[2:4]) / 10)
    assert record.mean_error == pytest.approx(sum(record.error_by_domain.values()) / 3)
    assert read_record(sink).closing == record.closing


def test_the_header_tells_what_ran(network, tmp_path):
    adapter = driftlaw.adapt(network, "law", seed=4, tau=0.6)
    header = run(NoisyStream(), adapter, sink=tmp_path / "one.jsonl").header
    assert (header["method"], header["seed"], header["settings"]["tau"]) == ("law", 4, 0.6)
    assert header["stream"] == {"kind": "noise", "seed": 0}
    assert len(header["model"]["sha256"]) == 64
    assert header["fact_labels"]["layer_weights"][0] == "conv.weight"


def test_layer_weights_of_every_step_are_in_the_record(network):
    record = run(NoisyStream(), driftlaw.adapt(network, "law"))
    rows = record.diagnostics("layer_weights")
    assert len(rows) == 6
    assert all(len(row) == len(record.header["fact_labels"]["layer_weights"]) for row in rows)


@pytest.mark.parametrize(("method", "units"), [("source", 1), ("norm", 1), ("tent", 2), ("law", 8)])
def test_the_counted_cost_is_what_the_method_declares(network, method, units):
    record = run(NoisyStream(), driftlaw.adapt(network, method))
    cost = record.closing["cost"]
    assert cost["step_flops_per_image"] / cost["forward_flops_per_image"] == pytest.approx(units, rel=0.1)
    declared = driftlaw.adapt(network, method)
    assert declared.forward_cost + declared.backward_cost == units


def test_neither_a_warm_up_nor_a_second_network_spoils_the_counted_cost(network):
    """RMT looks at its source in the first step and answers with two networks."""
    for _ in range(2):  # made, then found on disk
        cost = run(NoisyStream(), driftlaw.adapt(network, "rmt", train_data=SyntheticDataset())).closing["cost"]
        assert cost["step_flops_per_image"] / cost["forward_flops_per_image"] == pytest.approx(10, rel=0.1)


@pytest.mark.parametrize("killed_after", [1, 4])
@pytest.mark.parametrize("method", ["rmt", "gtta"])
def test_a_killed_run_with_source_data_ends_in_the_same_bytes(network, tmp_path, method, killed_after):
    def adapter():
        return driftlaw.adapt(network, method, train_data=SyntheticDataset())

    undisturbed, disturbed = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    header = run(NoisyStream(), adapter(), sink=undisturbed).header
    assert header["source"]["name"] == "made-up"
    with pytest.raises(Killed):
        run(NoisyStream(), adapter(), sink=disturbed, checkpoint_seconds=0, progress=kill_after(killed_after))
    run(NoisyStream(), adapter(), sink=disturbed)
    assert without_timings(disturbed) == without_timings(undisturbed)


def test_counting_the_cost_leaves_no_trace(network):
    adapter, plain = driftlaw.adapt(network, "law", seed=1), driftlaw.adapt(network, "law", seed=1)
    run(NoisyStream(), adapter)
    for batch in NoisyStream():
        plain(batch.images.contiguous(memory_format=torch.channels_last))
    for name, value in plain.state_dict().items():
        if isinstance(value, torch.Tensor):
            torch.testing.assert_close(adapter.state_dict()[name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("method", ["source", "norm", "tent", "law"])
@pytest.mark.parametrize("killed_after", [1, 3, 6])
@pytest.mark.parametrize("checkpoint_seconds", [0.0, 1e9])
def test_a_killed_run_ends_in_the_same_bytes(network, tmp_path, method, killed_after, checkpoint_seconds):
    undisturbed, disturbed = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    run(NoisyStream(), driftlaw.adapt(network, method, seed=2), sink=undisturbed)
    with pytest.raises(Killed):
        run(
            NoisyStream(),
            driftlaw.adapt(network, method, seed=2),
            sink=disturbed,
            checkpoint_seconds=checkpoint_seconds,
            progress=kill_after(killed_after),
        )
    with disturbed.open("ab") as file:
        file.write(b'{"batch":99,"torn')
    run(NoisyStream(), driftlaw.adapt(network, method, seed=2), sink=disturbed, checkpoint_seconds=checkpoint_seconds)
    assert without_timings(disturbed) == without_timings(undisturbed)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "b.jsonl"]


def test_a_resumed_run_does_not_answer_again_what_it_has_answered(network, tmp_path):
    sink = tmp_path / "one.jsonl"
    with pytest.raises(Killed):
        run(NoisyStream(), driftlaw.adapt(network, "law"), sink=sink, checkpoint_seconds=0, progress=kill_after(5))
    answered = []
    run(NoisyStream(), driftlaw.adapt(network, "law"), sink=sink, progress=lambda line: answered.append(line["batch"]))
    assert answered == [4, 5]  # the checkpoint after batch 3 was the last one written before the kill


def test_a_finished_record_is_returned_as_it_is(network, tmp_path):
    sink = tmp_path / "one.jsonl"
    run(NoisyStream(), driftlaw.adapt(network, "tent"), sink=sink)
    before = sink.read_bytes()
    record = run(NoisyStream(), driftlaw.adapt(network, "tent"), sink=sink, progress=lambda line: pytest.fail("ran"))
    assert sink.read_bytes() == before
    assert record.finished


def test_another_runs_record_is_never_overwritten(network, tmp_path):
    sink = tmp_path / "one.jsonl"
    run(NoisyStream(), driftlaw.adapt(network, "tent"), sink=sink)
    before = sink.read_bytes()
    with pytest.raises(UsageError, match=r"another run \(differing: settings\)"):
        run(NoisyStream(), driftlaw.adapt(network, "tent", learning_rate=0.1), sink=sink)
    with pytest.raises(UsageError, match="stream"):
        run(NoisyStream(seed=1), driftlaw.adapt(network, "tent"), sink=sink)
    assert sink.read_bytes() == before


def test_reset_on_domain_gives_each_domain_a_fresh_adapter(network):
    record = run(NoisyStream(), driftlaw.adapt(network, "law", learning_rate=0.1), reset_on="domain")
    batches = list(NoisyStream())
    for domain in range(3):
        fresh = driftlaw.adapt(network, "law", learning_rate=0.1)
        for batch in batches[2 * domain : 2 * domain + 2]:
            answers = fresh(batch.images.contiguous(memory_format=torch.channels_last))
            assert record.batches[batch.index]["wrong"] == int((answers.argmax(1) != batch.labels).sum())


def test_a_stream_without_labels_cannot_be_measured(network):
    with pytest.raises(UsageError, match="no labels"):
        run(NoisyStream(labelled=False), driftlaw.adapt(network, "source"))


def test_an_unknown_reset_is_refused(network):
    with pytest.raises(UsageError, match="never"):
        run(NoisyStream(), driftlaw.adapt(network, "source"), reset_on="sometimes")


def test_what_is_no_stream_or_no_adapter_is_told(network):
    with pytest.raises(UsageError, match="expected a stream, found list"):
        run([torch.rand(2, 3, 16, 16)], driftlaw.adapt(network, "norm"))
    with pytest.raises(UsageError, match="expected an adapter, found WideResNet"):
        run(NoisyStream(), network)


def test_a_network_of_fewer_classes_than_the_stream_has_is_refused():
    narrow = driftlaw.adapt(build_model("wrn_10_1", num_classes=3), "source")
    with pytest.raises(UsageError, match="the network answers 3 classes, and there is a label 3"):
        run(NoisyStream(), narrow)
    wide = driftlaw.adapt(build_model("wrn_10_1", num_classes=9), "source")
    assert run(NoisyStream(), wide).finished
