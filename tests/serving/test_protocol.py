"""Open Inference Protocol, version 2."""

import json

import numpy as np
import pytest

from driftlaw.testing.fixtures import CLASSES, SIZE
from tests.serving.running import Running

URL = "/v2/models/tiny/infer"
LENGTH = "Inference-Header-Content-Length"


def request(images, **more):
    tensor = {"name": "images", "datatype": "FP32", "shape": list(images.shape), "data": images.flatten().tolist()}
    return {"inputs": [tensor], **more}


def binary(images, datatype="FP32", **more):
    data = images.tobytes()
    tensor = {"name": "images", "datatype": datatype, "shape": list(images.shape)}
    text = json.dumps({"inputs": [tensor | {"parameters": {"binary_data_size": len(data)}}], **more}).encode()
    return {"content": text + data, "headers": {LENGTH: str(len(text))}}


def test_health_and_metadata(run_server):
    client = run_server(tokens=("use", None)).client
    assert client.get("/v2/health/live").status_code == 200
    assert client.get("/v2/health/ready").json() == {"ready": True}
    assert client.get("/v2/models/tiny/ready").status_code == 200
    assert client.get("/v2/models/other/ready").status_code == 404
    assert client.get("/v2/models/tiny").status_code == 401
    metadata = client.get("/v2/models/tiny", headers={"Authorization": "Bearer use"}).json()
    assert metadata["inputs"][0]["shape"] == [-1, 3, SIZE, SIZE]
    assert metadata["outputs"][0]["shape"] == [-1, CLASSES]


def test_a_server_that_shuts_down_is_not_ready(tmp_path):
    running = Running(tmp_path)
    with running.client:
        running.server.draining = True
        assert running.client.get("/v2/health/ready").status_code == 503
        assert running.client.post("/v1/predict").status_code == 503


def test_predictions_are_those_of_the_other_route(run_server, images):
    wanted = [row["class"] for row in run_server().predict(images).json()["predictions"]]
    answer = run_server().client.post(URL, json=request(images, id="7")).json()
    logits, prediction = answer["outputs"]
    assert (answer["model_name"], answer["id"]) == ("tiny", "7")
    assert prediction == {"name": "prediction", "datatype": "INT64", "shape": [8], "data": wanted}
    assert np.reshape(logits["data"], logits["shape"]).argmax(1).tolist() == wanted


def test_nested_data_and_requested_outputs(run_server, images):
    body = request(images, outputs=[{"name": "prediction"}])
    body["inputs"][0]["data"] = images.tolist()
    assert [output["name"] for output in run_server().client.post(URL, json=body).json()["outputs"]] == ["prediction"]


@pytest.mark.parametrize("datatype", ["FP32", "UINT8"])
def test_binary_tensors(run_server, images, datatype):
    pixels = (images * 255).round().astype(np.uint8)
    sent = pixels if datatype == "UINT8" else pixels.astype(np.float32) / np.float32(255)
    wanted = run_server().client.post(URL, json=request(pixels.astype(np.float32) / np.float32(255))).json()
    response = run_server().client.post(URL, **binary(sent, datatype, parameters={"binary_data_output": True}))
    assert response.status_code == 200, response.text
    length = int(response.headers[LENGTH])
    head, blob = json.loads(response.content[:length]), response.content[length:]
    size = head["outputs"][0]["parameters"]["binary_data_size"]
    logits = np.frombuffer(blob[:size], "<f4")
    assert logits.tolist() == pytest.approx(wanted["outputs"][0]["data"], abs=1e-6)
    assert np.frombuffer(blob[size:], "<i8").tolist() == wanted["outputs"][1]["data"]


def test_wrong_requests_are_json_errors(run_server, images):
    client, good = run_server().client, request(images)
    wrong_shape = request(images) | {}
    wrong_shape["inputs"] = [good["inputs"][0] | {"shape": [8, 3, SIZE, SIZE + 1]}]
    bodies = [
        {},
        {"inputs": []},
        {"inputs": [good["inputs"][0] | {"name": "other"}]},
        {"inputs": [good["inputs"][0] | {"datatype": "BYTES"}]},
        {"inputs": [good["inputs"][0] | {"shape": [-8, -3, SIZE, SIZE]}]},
        {"inputs": [good["inputs"][0] | {"data": ["a"]}]},
        good | {"outputs": [{"name": "other"}]},
        wrong_shape,
    ]
    answers = [client.post(URL, json=body) for body in bodies]
    cut = binary(images)
    answers += [client.post(URL, content=cut["content"][:-5], headers=cut["headers"])]
    answers += [client.post(URL, content=cut["content"], headers={LENGTH: "99999999"})]
    answers += [client.post(URL, content=b"{}", headers={LENGTH: "abc"}), client.post("/v2/models/x/infer", json=good)]
    assert {answer.status_code for answer in answers} <= {400, 404, 422}
    assert all(answer.json()["error"] for answer in answers)
