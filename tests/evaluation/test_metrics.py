"""Optional metrics: their values, and that computing them changes nothing else."""

from __future__ import annotations

import pytest
import torch

import driftlaw
from driftlaw.base import Monitor
from driftlaw.errors import UsageError
from driftlaw.evaluation.metrics import confidence_bins
from driftlaw.records import calibration_error, clean_error, layer_drift, read_record
from tests.base.models import Recorder
from tests.evaluation.noise_stream import METRICS, NoiseStream


def run(model, method="law", *, metrics=METRICS, stream=None, **options):
    adapter = driftlaw.adapt(model, method, seed=2)
    return driftlaw.run(stream or NoiseStream(), adapter, metrics=metrics, **options)


def test_metrics_change_no_prediction(model):
    without, with_metrics = run(model, metrics=()), run(model)
    for line, measured in zip(without.batches, with_metrics.batches, strict=True):
        assert line["wrong"] == measured["wrong"]
        assert line["facts"].items() <= measured["facts"].items()


def test_a_record_without_metrics_does_not_mention_them(model, tmp_path):
    path = tmp_path / "plain.jsonl"
    run(model, metrics=(), record=path)
    text = path.read_text()
    assert all(f'"{word}"' not in text for word in ("measures", "calibration", "clean", "drift"))


def test_calibration_equals_the_usual_formula(model):
    record = run(model, "source", metrics=["calibration"])
    probabilities = torch.cat([model.eval()(batch.images) for batch in NoiseStream()]).detach().softmax(1)
    labels = torch.cat([batch.labels for batch in NoiseStream()])
    expected = 0.0
    for low in range(15):
        inside = (probabilities.amax(1) > low / 15) & (probabilities.amax(1) <= (low + 1) / 15)
        if inside.any():
            accuracy = (probabilities.argmax(1) == labels)[inside].double().mean()
            gap = (accuracy - probabilities.amax(1)[inside].double().mean()).abs()
            expected += float(inside.double().mean() * gap)
    assert calibration_error(record) == pytest.approx(100 * expected, abs=1e-3)


def test_confidence_of_one_and_nan_have_a_bin():
    logits = torch.tensor([[0.0, float("-inf")], [float("nan"), 0.0]])
    histogram = confidence_bins(logits, torch.tensor([0, 1]))
    assert histogram["count"] == [1] + [0] * 13 + [1]
    assert histogram["correct"] == [0] * 14 + [1]
    assert histogram["confidence"] == [0.0] * 14 + [1.0]


def test_forgetting_compares_errors_before_and_after(model):
    record = run(model, metrics=["forgetting"])
    adapter = driftlaw.adapt(model, "law", seed=2)
    (clean,) = NoiseStream().clean(8)
    wrong = [int((adapter.predict(clean.images).argmax(1) != clean.labels).sum())]
    for batch in NoiseStream():
        adapter(batch.images)
    wrong.append(int((adapter.predict(clean.images).argmax(1) != clean.labels).sum()))
    error = clean_error(record)
    assert [error.before, error.after, error.images] == [100 * wrong[0] / 8, 100 * wrong[1] / 8, 8]


def test_a_method_that_trains_nothing_has_no_drift(model):
    record = run(model, "norm", metrics=["drift"])
    assert [line["drift"] for line in record.batches if "drift" in line] == [[]] * 3


def test_drift_is_in_the_last_line_of_a_domain(model):
    record = run(model, metrics=["drift"])
    assert ["drift" in line for line in record.batches] == [False, True] * 3
    adapter = driftlaw.adapt(model, "law", seed=2)
    for batch in NoiseStream():
        adapter(batch.images)
    drift = layer_drift(record)
    adapted = dict(adapter.model.named_parameters())["conv.weight"].detach()
    initial = model.conv.weight.detach()
    index = drift.tensors.index("conv.weight")
    assert drift.distances[-1, index] == pytest.approx(float((adapted - initial).norm() / initial.norm()), rel=1e-3)
    assert not any(name.startswith("head") for name in drift.tensors)


def test_agreement_is_recorded_at_every_tenth_step_with_the_names_of_the_tensors(model):
    record = run(model, metrics=["agreement"])
    measured = ["source_agreement" in line["facts"] for line in record.batches]
    assert measured == [True] + [False] * 5
    assert record.header["measures"] == {"agreement": {"every": 10, "sample": 32}}
    assert record.diagnostics("layer_distance")[0][0] > 0
    assert record.diagnostic_labels("layer_distance")[0] == "conv.weight"


def test_a_monitor_that_is_set_already_is_used_and_recorded(model):
    adapter = driftlaw.adapt(model, "tent")
    adapter.monitor = Monitor(every=2, sample=3)
    record = driftlaw.run(NoiseStream(), adapter)
    assert ["source_agreement" in line["facts"] for line in record.batches] == [True, False] * 3
    assert record.header["measures"] == {"agreement": {"every": 2, "sample": 3}}


def test_counting_the_cost_calls_no_callback(model):
    adapter = driftlaw.adapt(model, "law")
    seen = adapter.add_callback(Recorder())
    driftlaw.run(NoiseStream(), adapter)
    assert seen.steps == [1, 2, 3, 4, 5, 6]
    assert adapter.summary()["images"] == 30


@pytest.mark.filterwarnings("ignore:The model returned NaN")
def test_a_model_with_nan_logits_still_gets_its_record(model, tmp_path):
    model.register_forward_hook(lambda module, inputs, logits: logits * float("nan"))
    record = run(model, record=tmp_path / "one.jsonl")
    assert record.finished
    assert record.batches[0]["facts"]["entropy"] is None
    assert record.mean_error == 100
    assert calibration_error(record) == 0  # no confidence, and none correct
    assert clean_error(record).after == 100
    assert read_record(tmp_path / "one.jsonl").batches == record.batches


def test_an_unknown_metric_names_the_nearest_one(model):
    with pytest.raises(UsageError, match=r"Unknown metric 'drif'\. Did you mean 'drift'\?"):
        run(model, metrics=["drif"])


def test_forgetting_needs_clean_images(model):
    class StreamWithoutClean(NoiseStream):
        clean = property()  # raises AttributeError when read

    with pytest.raises(UsageError, match="needs clean images, but StreamWithoutClean has none"):
        run(model, metrics=["forgetting"], stream=StreamWithoutClean())


def test_a_corrupted_stream_has_clean_images():
    stream = driftlaw.make_stream("embedded", limit=30, batch_size=20, order="dirichlet")
    clean = stream.clean(2000)
    assert [len(batch.images) for batch in clean] == [20, 10]
    assert {batch.domain.name for batch in clean} == {"clean"}
    assert len(next(iter(stream.clean(7))).images) == 7
