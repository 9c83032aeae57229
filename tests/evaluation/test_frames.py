"""Frames of segmentation runs: their contents, which batches have one, and resuming."""

import base64
import io

import numpy as np
import pytest
import torch
from PIL import Image

import driftlaw
from driftlaw.errors import UsageError
from driftlaw.evaluation import metrics
from driftlaw.evaluation.frames import encode_frame
from driftlaw.records import read_record
from tests.evaluation.noise_stream import NoiseStream, lines_without_timing

SETTINGS = {"dataset": "shapes", "schedule": "recurring", "rounds": 4, "limit": 6, "batch_size": 4}


def decode(text):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(text))))


def frames_of(record):
    return {line["batch"]: line["frame"] for line in record.batches if "frame" in line}


@pytest.fixture(scope="module")
def network():
    return driftlaw.load_model("fpn_wrn_10_1-shapes")


@pytest.fixture(scope="module")
def stream():
    return driftlaw.make_stream(SETTINGS, corruptions=["fog", "contrast"])


@pytest.fixture(scope="module")
def complete(network, stream, tmp_path_factory):
    """Record of a run over 16 batches: two per domain, two domains per round."""
    path = tmp_path_factory.mktemp("frames") / "complete.jsonl"
    driftlaw.run(stream, driftlaw.adapt(network, "norm", statistics="batch"), metrics=["frames"], record=path)
    return read_record(path)


def test_the_last_batch_of_a_domain_has_its_first_frame_in_rounds_1_2_and_4(complete, network, stream):
    frames = frames_of(complete)
    assert list(frames) == [1, 3, 5, 7, 13, 15]
    adapter = driftlaw.adapt(network, "norm", statistics="batch")
    for batch in stream:
        logits = adapter(batch.images)
        if batch.index in frames:
            frame = {name: decode(text) for name, text in frames[batch.index].items()}
            assert frame["truth"].tolist() == batch.labels[0].tolist()
            assert frame["prediction"].tolist() == logits[0].argmax(0).tolist()
            difference = frame["input"] / 255 - batch.images[0].permute(1, 2, 0).numpy()
            assert np.abs(difference).mean() < 0.03  # JPEG


def test_an_interrupted_run_ends_with_the_same_bytes(complete, network, stream, tmp_path):
    path = tmp_path / "resumed.jsonl"

    def stop(line):
        if line["batch"] == 3:
            raise KeyboardInterrupt

    options = {"metrics": ["frames"], "record": path, "checkpoint_seconds": 0}
    with pytest.raises(KeyboardInterrupt):
        driftlaw.run(stream, driftlaw.adapt(network, "norm", statistics="batch"), progress=stop, **options)
    driftlaw.run(stream, driftlaw.adapt(network, "norm", statistics="batch"), **options)
    assert lines_without_timing(path) == lines_without_timing(complete.path)


def test_the_number_of_frames_is_limited(network, stream, monkeypatch):
    monkeypatch.setattr(metrics, "MAX_FRAMES", 2)
    record = driftlaw.run(stream, driftlaw.adapt(network, "source"), metrics=["frames"])
    assert list(frames_of(record)) == [1, 3]


def test_ignored_pixels_and_logits_that_are_not_finite_have_no_class():
    logits = torch.zeros(3, 2, 4)
    logits[2, :, 1:] = 1.0
    logits[1, 0, 3] = torch.nan
    frame = encode_frame(torch.rand(1, 2, 4), logits, torch.tensor([[0, 1, 9, -1], [2, 2, 2, 2]]), ignore_index=9)
    assert decode(frame["truth"]).tolist() == [[0, 1, 255, 255], [2, 2, 2, 2]]
    assert decode(frame["prediction"]).tolist() == [[0, 2, 2, 255], [0, 2, 2, 2]]
    assert decode(frame["input"]).shape == (2, 4, 3)


def test_large_frames_are_reduced_and_small_logits_enlarged():
    labels = torch.zeros(200, 480, dtype=torch.uint8)
    labels[:, 240:] = 7
    logits = torch.zeros(8, 50, 120)
    logits[3, :, :60] = 1.0
    frame = encode_frame(torch.full((4, 200, 480), 0.5), logits, labels)
    truth, prediction = decode(frame["truth"]), decode(frame["prediction"])
    assert truth.shape == prediction.shape == decode(frame["input"]).shape[:2] == (100, 240)
    assert (truth[:, :120] == 0).all()
    assert (truth[:, 120:] == 7).all()
    assert (prediction[:, :118] == 3).all()
    with pytest.raises(UsageError, match="up to 255 classes, but the model has 256"):
        encode_frame(torch.zeros(3, 2, 2), torch.zeros(256, 2, 2), torch.zeros(2, 2))


@pytest.mark.parametrize(("labelled", "found"), [(True, "one label per image"), (False, "no labels")])
def test_a_stream_without_label_maps_is_refused(model, labelled, found):
    with pytest.raises(UsageError, match=rf"'frames' needs label maps \(n, h, w\), but the stream has {found}"):
        driftlaw.run(NoiseStream(labelled=labelled), driftlaw.adapt(model, "source"), metrics=["frames"])
