"""Label maps of a segmentation network: routes of the server, the client, and ``driftlaw watch``."""

import base64
import io
import json

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import driftlaw
from driftlaw import cli
from driftlaw.datasets import load_dataset
from driftlaw.errors import UsageError
from driftlaw.label_colors import CLASS_COLORS
from driftlaw.serving.label_maps import predict_label_maps
from driftlaw.serving.network_input import NetworkInput
from tests.serving.test_client import Opener

INPUT = NetworkInput(32, 48, is_dense=True)


@pytest.fixture(scope="module")
def model():
    return driftlaw.load_model("fpn_wrn_10_1-shapes")


@pytest.fixture(scope="module")
def frames():
    """Three frames, uint8 (3, 32, 48, 3)."""
    return load_dataset("shapes").images(range(3))


@pytest.fixture
def server(run_server, model):
    return run_server(adapter=make_adapter(model), image_size=INPUT)


def make_adapter(model):
    return driftlaw.adapt(model, "norm", statistics="mixed")


def expected(model, frames):
    """Return the label maps of an adapter that receives these frames as one batch."""
    return make_adapter(model)(torch.from_numpy(frames).permute(0, 3, 1, 2)).argmax(1).numpy()


def png(frame):
    file = io.BytesIO()
    Image.fromarray(frame).save(file, "PNG")
    return file.getvalue()


def read_png(data):
    return Image.open(io.BytesIO(data))


def files(frames):
    return [("files", (f"{number}.png", png(frame), "image/png")) for number, frame in enumerate(frames)]


def test_label_maps_are_those_of_the_adapter(server, model, frames):
    response = server.client.post("/v1/predict", files=files(frames))
    assert response.status_code == 200, response.text
    for row, labels in zip(response.json()["predictions"], expected(model, frames), strict=True):
        image = read_png(base64.b64decode(row["label_map"]))
        assert image.mode == "L"
        assert np.array_equal(np.asarray(image), labels)
        shares = {entry["class"]: entry["share"] for entry in row["classes"]}
        assert shares == {int(label): round((labels == label).mean(), 6) for label in np.unique(labels)}
        assert list(shares.values()) == sorted(shares.values(), reverse=True)
        assert all(0.2 <= entry["confidence"] <= 1 for entry in row["classes"])
    status = server.client.get("/v1/status").json()
    (last,) = status["last_batch"]
    assert last["classes"] == row["classes"]  # of the last frame
    assert status["class_colors"][1] == f"#{bytes(CLASS_COLORS[1]).hex()}"


def test_label_map_and_overlay_of_another_size_are_png_files_of_that_size(server, model, frames):
    large = np.array(Image.fromarray(frames[0]).resize((100, 80), Image.Resampling.BILINEAR))
    headers = {"Content-Type": "image/png", "Accept": "image/png"}
    answers = [
        server.client.post(f"/v1/predict{query}", content=png(large), headers=headers)
        for query in ("", "?overlay=true")
    ]
    assert [answer.headers["content-type"] for answer in answers] == ["image/png"] * 2
    label_map, overlay = (read_png(answer.content) for answer in answers)
    assert label_map.size == overlay.size == (100, 80)
    resized = np.array(Image.fromarray(large).resize((48, 32), Image.Resampling.BILINEAR))
    labels = Image.fromarray(expected(model, resized[None])[0].astype(np.uint8))
    assert np.array_equal(np.asarray(label_map), np.asarray(labels.resize((100, 80), Image.Resampling.NEAREST)))
    gray = np.asarray(Image.fromarray(large).convert("L"))[..., None]
    mixed = 0.4 * gray + 0.6 * CLASS_COLORS[np.asarray(label_map)]
    assert np.abs(np.asarray(overlay) - mixed).max() <= 1


def test_frames_of_several_sizes_have_label_maps_of_their_sizes(server, frames):
    small = np.asarray(Image.fromarray(frames[1]).resize((24, 16)))
    body = {"files": files([frames[0], small])}
    rows = server.client.post("/v1/predict?overlay=true", **body).json()["predictions"]
    for kind in ("label_map", "overlay"):
        assert [read_png(base64.b64decode(row[kind])).size for row in rows] == [(48, 32), (24, 16)]


def test_answers_fit_the_models_of_the_document(server, frames):
    from driftlaw.serving import openapi

    answer = server.client.post("/v1/predict", files=files(frames[:1])).json()
    assert isinstance(openapi.Predictions.model_validate(answer).predictions[0], openapi.LabelMapPrediction)
    responses = server.client.get("/openapi.json").json()["paths"]["/v1/predict"]["post"]["responses"]
    assert set(responses["200"]["content"]) == {"application/json", "image/png"}
    assert "406" in responses


def test_open_inference_protocol_has_label_maps_and_no_logits(server, model, frames):
    pixels = frames.transpose(0, 3, 1, 2)
    tensor = {"name": "images", "datatype": "UINT8", "shape": list(pixels.shape), "data": pixels.flatten().tolist()}
    (output,) = server.client.get("/v2/models/tiny").json()["outputs"]
    assert (output["name"], output["shape"]) == ("prediction", [-1, 32, 48])
    refused = server.client.post("/v2/models/tiny/infer", json={"inputs": [tensor], "outputs": [{"name": "logits"}]})
    assert refused.status_code == 422
    assert "Use 'prediction'" in refused.json()["error"]
    (output,) = server.client.post("/v2/models/tiny/infer", json={"inputs": [tensor]}).json()["outputs"]
    assert output["datatype"] == "UINT8"
    assert np.array_equal(np.reshape(output["data"], output["shape"]), expected(model, frames))


def test_answers_that_are_not_possible_are_refused_before_the_prediction(server, run_server, frames):
    accept = {"Accept": "image/png"}
    two = server.client.post("/v1/predict", files=files(frames[:2]), headers=accept)
    wrong = server.client.post("/v1/predict?overlay=maybe", files=files(frames[:1]))
    classifier = run_server(method="source")
    refused = [
        classifier.client.post("/v1/predict", files=files(frames[:1]), headers=accept),
        classifier.client.post("/v1/predict?overlay=true", files=files(frames[:1])),
    ]
    assert [answer.status_code for answer in (two, wrong, *refused)] == [406, 422, 406, 406]
    assert "one class per image" in refused[0].json()["error"]
    assert server.client.get("/v1/status").json()["images"] == classifier.client.get("/v1/status").json()["images"] == 0


def test_client_returns_png_files(server, frames):
    client = driftlaw.Client("http://localhost:8000")
    client._opener = Opener(server)
    (row,) = client.predict(frames[:1].transpose(0, 3, 1, 2), overlay=True)
    assert read_png(row["label_map"]).size == read_png(row["overlay"]).size == (48, 32)
    assert "overlay" not in client.predict(frames[:1].transpose(0, 3, 1, 2))[0]


def test_logits_that_are_small_or_not_finite():
    logits = torch.zeros(1, 3, 2, 2)
    logits[0, 2] = 4
    logits[0, 0, 0, 0] = torch.nan
    logits[0, 1, 1, 1] = -torch.inf
    (entry,) = predict_label_maps(logits, (2, 2))
    assert entry.labels.tolist() == [[255, 2], [2, 2]]
    (row,) = entry.describe(["a", "b", "c"])
    assert (row["class"], row["label"], row["share"]) == (2, "c", 0.75)
    (enlarged,) = predict_label_maps(torch.tensor([[[[3.0, -3.0]], [[-3.0, 3.0]]]]), (1, 8))
    assert enlarged.labels.tolist() == [[0] * 4 + [1] * 4]


# --- driftlaw watch --------------------------------------------------------------------------------------------------


def watch(*words):
    words = ["watch", *map(str, words), "--method", "source", "--device", "cpu", "--once"]
    return CliRunner().invoke(cli.app, words)


def test_watch_writes_label_maps_overlays_and_shares(tmp_path, model, frames):
    folder = tmp_path / "in"
    (folder / "a").mkdir(parents=True)
    Image.fromarray(frames[0]).save(folder / "a" / "1.png")
    Image.fromarray(frames[1]).resize((60, 40)).save(folder / "2.png")
    Image.fromarray(frames[2]).save(folder / "2.bmp")
    out, maps, overlays = tmp_path / "out.jsonl", tmp_path / "maps", tmp_path / "overlays"
    options = ["--network", "fpn_wrn_10_1-shapes", "--out", out, "--label-maps", maps, "--overlays", overlays]
    result = watch(folder, *options, "--batch-size", 2)
    assert result.exit_code == 0, result.exception
    lines = {line["file"]: line for line in map(json.loads, out.read_text().splitlines())}
    assert {name: line["png"] for name, line in lines.items()} == {
        "a/1.png": "a/1.png",
        "2.bmp": "2.png",
        "2.png": "2.png.png",
    }
    sizes = {"a/1.png": (48, 32), "2.bmp": (48, 32), "2.png": (60, 40)}
    for name, line in lines.items():
        written = [read_png((place / line["png"]).read_bytes()) for place in (maps, overlays)]
        assert [(image.mode, image.size) for image in written] == [("L", sizes[name]), ("RGB", sizes[name])]
        assert sum(entry["share"] for entry in line["classes"]) == pytest.approx(1, abs=1e-5)
        assert line["classes"][0]["label"] == "background"
    wanted = driftlaw.adapt(model, "source")(torch.from_numpy(frames[:1]).permute(0, 3, 1, 2)).argmax(1)[0]
    assert np.array_equal(np.asarray(read_png((maps / "a" / "1.png").read_bytes())), wanted)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--label-maps", "maps"], "need a network that predicts a class per pixel"),
        (["--label-maps", "in/maps"], "not in the watched one"),
        (["--label-maps", "maps", "--overlays", "maps/"], "different folders"),
    ],
    ids=["classifier", "inside", "same"],
)
def test_watch_refuses_folders_that_cannot_be_used(tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    result = watch("in", *options)
    assert isinstance(result.exception, UsageError)
    assert message in str(result.exception)
