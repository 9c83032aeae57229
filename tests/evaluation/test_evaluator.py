"""Evaluator: contents of the record, cost, resets and wrong arguments."""

from __future__ import annotations

import pytest
import torch

import driftlaw
from driftlaw.errors import UsageError
from driftlaw.evaluation import diagnostics_to_json, run
from driftlaw.models import build_model
from driftlaw.records import read_record, validate_record
from driftlaw.testing.fixtures import SyntheticDataset
from driftlaw.testing.snapshots import differences, state_of
from tests.evaluation.noise_stream import NoiseStream


def test_the_record_counts_errors_by_domain(model, tmp_path):
    path = tmp_path / "runs" / "one.jsonl"
    record = run(NoiseStream(), driftlaw.adapt(model, "source"), record=path)
    wrong = [int((model.eval()(b.images).argmax(1) != b.labels).sum()) for b in NoiseStream()]
    assert [line["wrong"] for line in record.batches] == wrong
    assert record.error_by_domain["b"] == pytest.approx(100 * sum(wrong[2:4]) / 10)
    assert record.mean_error == pytest.approx(sum(record.error_by_domain.values()) / 3)
    assert read_record(path).closing == record.closing


def test_the_header_describes_the_run(model, tmp_path):
    adapter = driftlaw.adapt(model, "law", seed=4, tau=0.6)
    header = run(NoiseStream(), adapter, record=tmp_path / "one.jsonl").header
    assert (header["method"], header["seed"], header["settings"]["tau"]) == ("law", 4, 0.6)
    assert header["stream"] == {"kind": "noise", "seed": 0}
    assert len(header["model"]["sha256"]) == 64
    assert header["fact_labels"]["layer_weights"][0] == "conv.weight"


def test_the_load_average_is_in_the_timing_of_the_closing_line(model, monkeypatch):
    loads = iter([0.5, 7.25])
    monkeypatch.setattr("driftlaw.evaluation.evaluator.load_average", lambda: next(loads))
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    record = run(NoiseStream(), driftlaw.adapt(model, "source"))
    assert record.timing["load_average"] == {"start": 0.5, "end": 7.25, "cpus": 4}
    assert record.busy_machine


def test_layer_weights_of_every_step_are_in_the_record(model):
    record = run(NoiseStream(), driftlaw.adapt(model, "law"))
    rows = [line["facts"]["layer_weights"] for line in record.batches]
    assert len(rows) == 6
    assert all(len(row) == len(record.header["fact_labels"]["layer_weights"]) for row in rows)


def test_diagnostics_have_six_digits_and_the_shape_of_their_values():
    diagnostics = {"a": 1 / 3, "b": torch.tensor(2 / 3), "c": torch.tensor([0.1, float("inf")]), "d": float("nan")}
    assert diagnostics_to_json(diagnostics) == {"a": 0.333333, "b": 0.666667, "c": [0.1, None], "d": None}


@pytest.mark.parametrize(("method", "passes"), [("source", 1), ("norm", 1), ("tent", 2), ("law", 8)])
def test_the_counted_cost_is_what_the_method_declares(model, method, passes):
    record = run(NoiseStream(), driftlaw.adapt(model, method))
    cost = record.closing["cost"]
    assert cost["step_flops_per_image"] / cost["forward_flops_per_image"] == pytest.approx(passes, rel=0.1)
    declared = driftlaw.adapt(model, method)
    assert declared.forward_cost + declared.backward_cost == passes


@pytest.mark.small_batches
@pytest.mark.parametrize(("method", "passes"), [("tent", 2), ("law", 8)])
def test_the_cost_of_small_batches_contains_that_of_their_update(model, method, passes):
    """Batches of 5 images are predicted, and every second one is followed by an update on 10 images."""
    cost = run(NoiseStream(), driftlaw.adapt(model, method, window=10)).closing["cost"]
    assert cost["step_flops_per_image"] / cost["forward_flops_per_image"] == pytest.approx(1 + passes, rel=0.1)


def test_neither_a_warm_up_nor_a_second_model_changes_the_counted_cost(model):
    """RMT uses its training data in the first step and predicts with two models."""
    for _ in range(2):  # prototypes computed, then read from the cache
        cost = run(NoiseStream(), driftlaw.adapt(model, "rmt", train_data=SyntheticDataset())).closing["cost"]
        assert cost["step_flops_per_image"] / cost["forward_flops_per_image"] == pytest.approx(10, rel=0.1)


def test_counting_the_cost_does_not_change_the_adapter(model):
    adapter, plain = driftlaw.adapt(model, "law", seed=1), driftlaw.adapt(model, "law", seed=1)
    run(NoiseStream(), adapter)
    for batch in NoiseStream():
        plain(batch.images.contiguous(memory_format=torch.channels_last))
    for name, value in plain.state_dict().items():
        if isinstance(value, torch.Tensor):
            torch.testing.assert_close(adapter.state_dict()[name], value, rtol=1e-5, atol=1e-6)


def test_reset_on_domain_gives_each_domain_a_fresh_adapter(model):
    record = run(NoiseStream(), driftlaw.adapt(model, "law", learning_rate=0.1), reset_on="domain")
    batches = list(NoiseStream())
    for domain in range(3):
        fresh = driftlaw.adapt(model, "law", learning_rate=0.1)
        for batch in batches[2 * domain : 2 * domain + 2]:
            logits = fresh(batch.images.contiguous(memory_format=torch.channels_last))
            assert record.batches[batch.index]["wrong"] == int((logits.argmax(1) != batch.labels).sum())


def test_deprecated_keywords_still_work(model, tmp_path):
    path = tmp_path / "one.jsonl"
    for function in (run, driftlaw.run):
        with pytest.warns(DeprecationWarning, match="is deprecated") as warned:
            record = function(NoiseStream(), driftlaw.adapt(model, "source"), sink=path, measures=["calibration"])
        texts = [str(warning.message) for warning in warned]
        assert any("record=" in text for text in texts)
        assert any("metrics=" in text for text in texts)
        assert all(warning.filename == __file__ for warning in warned)
        assert list(record.header["measures"]) == ["calibration"]
        assert path.exists()


def test_without_labels_the_record_has_everything_but_errors(model, tmp_path):
    batches = [(batch.images, batch.labels) for batch in NoiseStream()]
    record = run([images for images, _ in batches], driftlaw.adapt(model, "law"), record=tmp_path / "a.jsonl")
    labelled = run(batches, driftlaw.adapt(model, "law"))
    assert record.mean_error is None
    assert record.error_by_domain == {}
    assert (record.closing["mean_error"], record.closing["error_by_domain"]) == (None, {})
    assert record.closing["cost"] == labelled.closing["cost"]
    for line, other in zip(record.batches, labelled.batches, strict=True):
        assert line["wrong"] is None
        assert line["facts"] == other["facts"]
        assert line.keys() == other.keys()
    assert validate_record(read_record(tmp_path / "a.jsonl")).closing == record.closing


@pytest.mark.parametrize("metric", ["calibration", "forgetting"])
def test_metrics_that_need_labels_say_so(model, metric):
    stream = NoiseStream(labelled=False)
    stream.clean = lambda limit: iter(stream)
    with pytest.raises(UsageError, match=f"'{metric}' needs labels"):
        run(stream, driftlaw.adapt(model, "source"), metrics=[metric])


def test_labels_in_some_batches_only_are_refused(model):
    images, labels = torch.rand(4, 3, 16, 16), torch.arange(4)
    with pytest.raises(UsageError, match="batch 1 differs"):
        run([(images, labels), images], driftlaw.adapt(model, "source"))


def test_an_unknown_reset_is_refused(model):
    with pytest.raises(UsageError, match=r"reset_on = .* 'never' or 'domain'"):
        run(NoiseStream(), driftlaw.adapt(model, "source"), reset_on="sometimes")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("metrics", 5),
        ("metrics", "drift"),
        ("record", 1),
        ("record", torch.ones(2)),
        ("command", 3),
        ("checkpoint_seconds", ""),
    ],
)
def test_arguments_of_a_wrong_type_are_refused(model, name, value):
    with pytest.raises(UsageError, match=rf"run\(\):\n  - {name} = "):
        run(NoiseStream(), driftlaw.adapt(model, "source"), **{name: value})


def test_wrong_types_of_stream_and_adapter_are_refused(model):
    with pytest.raises(UsageError, match="Found a int; expected a DataLoader, a dataset, a folder"):
        run(3, driftlaw.adapt(model, "norm"))
    with pytest.raises(UsageError, match="Expected an adapter, found WideResNet"):
        run(NoiseStream(), model)


def test_channels_last_batches_with_labels_are_refused_with_a_remedy(model):
    with pytest.raises(UsageError, match=r"use images.permute\(0, 3, 1, 2\)"):
        run([(torch.rand(4, 32, 32, 3), torch.zeros(4, dtype=torch.int64))], driftlaw.adapt(model, "norm"))


def test_a_model_with_fewer_classes_than_the_stream_is_refused():
    for method in ("source", "norm", "tent", "law", "law_plus"):
        too_few = driftlaw.adapt(build_model("wrn_10_1", num_classes=3), method)
        before = state_of(too_few)
        with pytest.raises(UsageError, match="The model has 3 output classes, but the stream contains label 3"):
            run(NoiseStream(), too_few)
        assert differences(before, state_of(too_few)) == []
    more = driftlaw.adapt(build_model("wrn_10_1", num_classes=9), "source")
    assert run(NoiseStream(), more).finished


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_predictions_that_are_not_finite_are_wrong_and_counted(model, tmp_path, monkeypatch, value):
    stream = [(batch.images, torch.zeros(len(batch.images), dtype=torch.int64)) for batch in NoiseStream()]
    adapter = driftlaw.adapt(model, "source")
    step = adapter.step

    def spoiled(images):
        output = step(images)
        output.logits[:, 1:] = -torch.inf  # of classes that the model rules out: a legal prediction of class 0
        if len(images) == 4:
            output.logits[:3] = value
        return output

    monkeypatch.setattr(adapter, "step", spoiled)
    record = run(stream, adapter, record=tmp_path / "one.jsonl")
    assert [line.get("not_finite") for line in record.batches] == [None, 3] * 3
    assert [line["wrong"] for line in record.batches] == [0, 3] * 3
    assert record.not_finite == record.closing["not_finite"] == 9
    assert "30.00 % error, 9 predictions not finite" in repr(record)
    assert validate_record(read_record(tmp_path / "one.jsonl")).not_finite == 9


def test_a_record_of_finite_predictions_does_not_mention_others(model):
    record = run(NoiseStream(), driftlaw.adapt(model, "source"))
    assert record.not_finite == 0
    assert all("not_finite" not in line for line in [*record.batches, record.closing])
