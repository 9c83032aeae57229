"""What a run measures beside its error: right figures, no trace left, nothing written where nothing is asked for."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from torch import nn

import driftlaw
from driftlaw.base import Batch, Domain, Stream
from driftlaw.errors import UsageError
from driftlaw.evaluation.metrics import MEASURES, confidence_bins, relative_distances
from driftlaw.models import build_model
from driftlaw.records import calibration_error, clean_error, layer_drift


class NoisyStream(Stream):
    """Two domains of noise, two batches each; its clean images are one batch more."""

    num_classes = 4

    def __iter__(self):
        generator = torch.Generator().manual_seed(0)
        for index in range(len(self)):
            images = torch.rand(6, 3, 16, 16, generator=generator)
            labels = torch.randint(4, (6,), generator=generator)
            yield Batch(images, labels, Domain("ab"[index // 2], 5), index, starts_domain=index % 2 == 0)

    def __len__(self) -> int:
        return 4

    def recipe(self) -> dict:
        return {"kind": "noise"}

    def clean(self, limit: int) -> list[Batch]:
        generator = torch.Generator().manual_seed(9)
        images, labels = torch.rand(8, 3, 16, 16, generator=generator), torch.arange(8) % 4
        return [Batch(images, labels, Domain("clean"), 0, starts_domain=True)]


@pytest.fixture
def network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return build_model("wrn_10_1", num_classes=4)


def lines_of(path: Path) -> list[dict]:
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    return [{key: value for key, value in line.items() if key != "timing"} for line in lines]


def run(network, method="law", *, measures=MEASURES, stream=None, **options):
    adapter = driftlaw.adapt(network, method, seed=2)
    return driftlaw.run(stream or NoisyStream(), adapter, measures=measures, **options)


def test_measuring_changes_no_answer(network):
    plain, measured = run(network, measures=()), run(network)
    for name in ("wrong", "facts"):
        assert [line[name] for line in plain.batches] == [line[name] for line in measured.batches]


def test_nothing_is_written_where_nothing_is_asked_for(network, tmp_path):
    sink = tmp_path / "plain.jsonl"
    run(network, measures=(), sink=sink)
    text = sink.read_text()
    assert all(f'"{word}"' not in text for word in ("measures", "calibration", "clean", "drift"))


def test_calibration_is_what_the_usual_formula_gives(network):
    record = run(network, "source", measures=["calibration"])
    answers = torch.cat([network.eval()(batch.images) for batch in NoisyStream()]).detach().softmax(1)
    labels = torch.cat([batch.labels for batch in NoisyStream()])
    expected = 0.0
    for low in range(15):
        inside = (answers.amax(1) > low / 15) & (answers.amax(1) <= (low + 1) / 15)
        if inside.any():
            right = (answers.argmax(1) == labels)[inside].double().mean()
            expected += float(inside.double().mean() * (right - answers.amax(1)[inside].double().mean()).abs())
    assert calibration_error(record) == pytest.approx(100 * expected, abs=1e-3)


def test_confidences_on_an_edge_and_those_that_are_no_number_have_their_bin():
    logits = torch.tensor([[0.0, float("-inf")], [float("nan"), 0.0]])
    told = confidence_bins(logits, torch.tensor([0, 1]))
    assert told["count"] == [1] + [0] * 13 + [1]
    assert told["correct"] == [0] * 14 + [1]
    assert told["confidence"] == [0.0] * 14 + [1.0]


def test_clean_error_is_taken_before_and_after(network):
    record = run(network, measures=["forgetting"])
    adapter = driftlaw.adapt(network, "law", seed=2)
    (clean,) = NoisyStream().clean(8)
    wrong = [int((adapter.predict(clean.images).argmax(1) != clean.labels).sum())]
    for batch in NoisyStream():
        adapter(batch.images)
    wrong.append(int((adapter.predict(clean.images).argmax(1) != clean.labels).sum()))
    found = clean_error(record)
    assert [found.before, found.after, found.images] == [100 * wrong[0] / 8, 100 * wrong[1] / 8, 8]


def test_drift_is_told_in_the_line_that_ends_a_domain(network):
    record = run(network, measures=["drift"])
    assert ["drift" in line for line in record.batches] == [False, True, False, True]
    adapter = driftlaw.adapt(network, "law", seed=2)
    for batch in NoisyStream():
        adapter(batch.images)
    drift = layer_drift(record)
    own = dict(adapter.model.named_parameters())["conv.weight"].detach()
    origin = network.conv.weight.detach()
    at = drift.tensors.index("conv.weight")
    assert drift.distances[-1, at] == pytest.approx(float((own - origin).norm() / origin.norm()), rel=1e-3)
    assert not any(name.startswith("head") for name in drift.tensors)


def test_a_tensor_that_is_zero_at_the_source_has_no_relative_distance():
    source = {"a": torch.zeros(2), "b": torch.full((2,), 2.0)}
    assert relative_distances(source, {"a": torch.ones(2), "b": torch.full((2,), 3.0)}) == [None, 0.5]
    assert relative_distances({}, {}) == []


def test_a_network_that_has_gone_to_pieces_still_gets_its_record(network, tmp_path):
    with torch.no_grad():
        network.conv.weight.fill_(float("nan"))
    record = run(network, sink=tmp_path / "one.jsonl")
    assert all(math.isnan(value) for value in record.diagnostics("layer_weights")[0])
    assert layer_drift(record).mean == math.inf
    assert calibration_error(record) == pytest.approx(100 - record.mean_error)


class Killed(BaseException):
    """Stands for a kill."""


@pytest.mark.parametrize("killed_after", [1, 2, 4])
def test_a_killed_run_with_measures_ends_in_the_same_bytes(network, tmp_path, killed_after):
    from driftlaw.evaluation import evaluator as loop

    def progress(line):
        if line["batch"] + 1 == killed_after:
            raise Killed

    undisturbed, disturbed = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    run(network, sink=undisturbed)
    adapter = driftlaw.adapt(network, "law", seed=2)
    with pytest.raises(Killed):
        loop.run(NoisyStream(), adapter, measures=MEASURES, sink=disturbed, checkpoint_seconds=0, progress=progress)
    run(network, sink=disturbed)
    assert lines_of(disturbed) == lines_of(undisturbed)


@pytest.mark.parametrize(("first", "then"), [((), ("drift",)), (("drift",), ()), (("drift",), ("calibration",))])
def test_a_run_with_other_measures_is_another_run(network, tmp_path, first, then):
    sink = tmp_path / "one.jsonl"
    run(network, "source", measures=first, sink=sink)
    with pytest.raises(UsageError, match=r"differing: measures\)"):
        run(network, "source", measures=then, sink=sink)


def test_an_unknown_measure_names_its_neighbour(network):
    with pytest.raises(UsageError, match="Did you mean 'drift'"):
        run(network, measures=["drif"])


def test_forgetting_asks_for_clean_images(network):
    class Bare(NoisyStream):
        clean = property()  # as good as none

    with pytest.raises(UsageError, match="clean images"):
        run(network, measures=["forgetting"], stream=Bare())


def test_a_corrupted_stream_knows_its_clean_images():
    stream = driftlaw.make_stream("embedded", limit=30, batch_size=20, order="dirichlet")
    clean = stream.clean(2000)
    assert [len(batch.images) for batch in clean] == [20, 10]
    assert {batch.domain.name for batch in clean} == {"clean"}
    assert len(next(iter(stream.clean(7))).images) == 7
