"""Routes of the server: predictions, status, administration, tokens, errors."""

import json
import re

import numpy as np
import pytest
import torch

from driftlaw.testing.fixtures import MethodUnderTest, make_images
from tests.serving.running import png


def classes(response):
    assert response.status_code == 200, response.text
    return [row["class"] for row in response.json()["predictions"]]


def expected(*batches):
    """Return the predictions of an adapter that receives these batches."""
    adapter = MethodUnderTest.create("tent", {"guard": True}).adapter()
    return [adapter(torch.as_tensor(batch)).argmax(1).tolist() for batch in batches]


# --- predictions -----------------------------------------------------------------------------------------------------


def test_predictions_are_those_of_an_adapter_with_the_same_batches(run_server):
    server, batches = run_server(), [make_images(index).numpy() for index in range(3)]
    found = [server.predict(batch) for batch in batches]
    assert [classes(response) for response in found] == expected(*batches)
    assert [response.json()["step"] for response in found] == [1, 2, 3]
    first = found[0].json()
    assert first["model"] == "tiny"
    assert first["predictions"][0]["label"] == f"class {first['predictions'][0]['class']}"
    assert 0.25 <= first["predictions"][0]["confidence"] <= 1


def test_files_and_arrays_of_bytes_have_the_same_predictions(run_server, images):
    pixels = (images * 255).round().astype(np.uint8)
    wanted = expected(pixels)[0]
    files = [("files", (f"{index}.png", png(image), "image/png")) for index, image in enumerate(images)]
    assert classes(run_server().client.post("/v1/predict", files=files)) == wanted
    body = {"images": pixels.tolist(), "dtype": "uint8"}
    assert classes(run_server().client.post("/v1/predict", json=body)) == wanted


def test_one_image_may_be_the_body(run_server, images):
    server = run_server()
    response = server.client.post("/v1/predict", content=png(images[0]), headers={"Content-Type": "image/png"})
    assert len(classes(response)) == len(classes(server.predict(images[0]))) == 1


# --- status and administration ---------------------------------------------------------------------------------------


def test_status_reports_layer_weights_series_and_thumbnails(run_server, images):
    server = run_server(method="law")
    server.predict(images)
    status = server.client.get("/v1/status").json()
    assert (status["method"], status["mode"], status["steps"], status["images"]) == ("law", "adapting", 1, 8)
    assert status["layer_weights"]
    assert all(0 <= weight <= 1 for weight in status["layer_weights"].values())
    assert len(status["last_batch"]) == 8
    assert status["last_batch"][0]["image"].startswith("data:image/png;base64,")
    lengths = {name: len(values) for name, values in status["series"].items()}
    assert set(lengths.values()) == {120}
    server.client.post("/v1/reset")
    assert server.client.get("/v1/status").json()["layer_weights"] == {}


def test_a_paused_adapter_predicts_without_updates(run_server, images):
    server = run_server()
    assert server.client.post("/v1/pause").json() == {"mode": "paused", "step": 0}
    first, second = server.predict(images), server.predict(images)
    assert first.json() == second.json()
    assert server.client.post("/v1/resume").json() == {"mode": "adapting", "step": 0}
    assert server.predict(images).json()["step"] == 1
    events = server.client.get("/v1/status").json()["events"]
    assert [event["action"] for event in events] == ["pause", "resume"]


def test_reset_returns_to_the_source_model_and_deletes_snapshots(run_server, tmp_path, images):
    server = run_server(folder=tmp_path / "state")
    first = server.predict(images).json()
    server.predict(images)
    assert server.client.post("/v1/reset").json() == {"mode": "adapting", "step": 0}
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["step-000000000000.pt"]
    assert server.predict(images).json() == first


def test_rollback_returns_to_the_snapshot_before(run_server, images):
    server = run_server()
    assert not server.client.get("/v1/status").json()["can_roll_back"]
    answers = [server.predict(images).json() for _ in range(3)]
    assert server.client.get("/v1/status").json()["can_roll_back"]
    assert server.client.post("/v1/rollback").json()["step"] == 2
    assert server.predict(images).json() == answers[2]
    assert [server.client.post("/v1/rollback").json().get("step") for _ in range(3)] == [2, 1, None]
    response = server.client.post("/v1/rollback")
    assert response.status_code == 409
    assert not server.client.get("/v1/status").json()["can_roll_back"]
    assert "no snapshot" in response.json()["error"]


# --- tokens ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "sent", "predict", "reset"),
    [
        ((None, None), None, 200, 200),
        (("use", ""), "", 401, 403),
        (("use", "admin"), None, 401, 401),
        (("use", "admin"), "wrong", 401, 401),
        (("use", "admin"), "use", 200, 401),
        (("use", "admin"), "admin", 200, 200),
        (("use", None), "use", 200, 403),
        ((None, "admin"), None, 200, 401),
    ],
)
def test_tokens_of_clients_and_administrators_are_separate(run_server, images, tokens, sent, predict, reset):
    server = run_server(tokens=tokens)
    headers = {"Authorization": f"Bearer {sent}"} if sent else {}
    assert server.predict(images, **headers).status_code == predict
    assert server.client.get("/v1/status", headers=headers).status_code == predict
    assert server.client.get("/metrics", headers=headers).status_code == predict
    assert server.client.post("/v1/reset", headers=headers).status_code == reset


def test_web_pages_of_other_sites_are_refused(run_server):
    client = run_server().client
    assert client.post("/v1/reset", headers={"Origin": "https://example.org"}).status_code == 403
    assert client.post("/v1/reset", headers={"Origin": "http://localhost:8000"}).status_code == 200
    assert client.post("/v1/reset", headers={"Host": "example.org"}).status_code == 403


# --- description -----------------------------------------------------------------------------------------------------


def test_openapi_document_describes_bodies_tokens_and_errors(run_server):
    document = run_server(tokens=("use", "admin")).client.get("/openapi.json").json()
    schemas, predict = document["components"]["schemas"], document["paths"]["/v1/predict"]["post"]
    assert set(predict["requestBody"]["content"]) == {
        "application/json",
        "multipart/form-data",
        "image/png",
        "image/jpeg",
    }
    assert predict["security"] == [{"client": []}]
    assert document["paths"]["/v1/reset"]["post"]["security"] == [{"administrator": []}]
    error = {"$ref": "#/components/schemas/Error"}
    for path in ("/v1/predict", "/v1/reset", "/v2/models/{model}/infer"):
        responses = document["paths"][path]["post"]["responses"]
        assert all(
            responses[code]["content"]["application/json"]["schema"] == error for code in responses if code != "200"
        )
    references = re.findall(r"#/components/schemas/(\w+)", json.dumps(document))
    assert {"ImageArrays", "InferRequest", "InputTensor"} <= set(references) <= set(schemas)


def test_openapi_document_of_a_server_without_tokens_needs_none(run_server):
    document = run_server().client.get("/openapi.json").json()
    assert "securitySchemes" not in document["components"]


def test_answers_fit_the_models_of_the_document(run_server, images):
    from driftlaw.serving import openapi

    server = run_server()
    openapi.Predictions.model_validate(server.predict(images).json())
    openapi.AdapterState.model_validate(server.client.post("/v1/pause").json())
    tensor = {"name": "images", "datatype": "FP32", "shape": list(images.shape), "data": images.flatten().tolist()}
    answer = server.client.post("/v2/models/tiny/infer", json={"inputs": [tensor]}).json()
    assert openapi.InferAnswer.model_validate(answer).outputs[1].shape == [8]
    assert openapi.Ready.model_validate(server.client.get("/v2/health/ready?model=other").json()).ready


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "method", "status"), [("/nowhere", "GET", 404), ("/v1/predict", "GET", 405), ("/v1/../etc", "POST", 404)]
)
def test_unknown_routes_are_json_errors(run_server, path, method, status):
    response = run_server().client.request(method, path)
    assert response.status_code == status
    assert response.json()["error"]


def test_a_failing_model_is_an_error_and_the_server_goes_on(run_server, images, caplog):
    adapter = MethodUnderTest.create("source").adapter()
    server = run_server(adapter=adapter)
    step, adapter.step = adapter.step, None
    response = server.predict(images)
    assert response.status_code == 500
    assert "model failed" in response.json()["error"]
    adapter.step = step
    assert len(classes(server.predict(images))) == 8


def test_every_answer_is_logged(run_server, images, caplog):
    caplog.set_level("INFO", logger="driftlaw.requests")
    server = run_server()
    predicted = classes(server.predict(images))
    server.predict(images[:, :1])
    server.client.get("/v1/status")
    lines = [json.loads(record.message) for record in caplog.records if record.name == "driftlaw.requests"]
    assert [(line["path"], line["status"]) for line in lines] == [("/v1/predict", 200), ("/v1/predict", 422)]
    assert lines[0]["predictions"] == predicted
    assert "shape" in lines[1]["reason"]


def test_metrics_count_requests_images_and_guard_events(run_server, images):
    server = run_server()
    server.predict(images)
    server.predict(np.zeros_like(images))
    server.client.get("/nowhere")
    text = server.client.get("/metrics").text
    assert 'driftlaw_requests_total{code="200",route="/v1/predict"} 2.0' in text
    assert 'driftlaw_requests_total{code="404",route="other"} 1.0' in text
    assert "driftlaw_images_total 16.0" in text
    assert 'driftlaw_guard_events_total{action="skip_image",adapter=""} 1.0' in text
    assert 'driftlaw_steps{adapter=""} 1.0' in text
    assert 'driftlaw_mode{adapter="",mode="adapting"} 1.0' in text
