"""What the server refuses: full queues, expired requests, large bodies, bombs, damaged files, unknown tenants."""

import io
import json
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from PIL import Image

from driftlaw.testing.fixtures import SIZE, MethodUnderTest, make_images
from tests.serving.running import png

JSON = {"Content-Type": "application/json"}


class Gate:
    """Stops the batches of an adapter until it is opened, and remembers them."""

    def __init__(self, adapter):
        self.open, self.started, self.batches = threading.Event(), threading.Event(), []
        step = adapter.step

        def gated(images):
            self.batches.append(images)
            self.started.set()
            assert self.open.wait(30)
            return step(images)

        adapter.step = gated


@pytest.fixture
def gated(run_server):
    """A function that starts a server whose batches wait for ``gate.open``, and requests in threads."""
    pool, gates = ThreadPoolExecutor(64), []

    def start(**settings):
        adapter = MethodUnderTest.create("source").adapter()
        gates.append(Gate(adapter))
        return run_server(adapter=adapter, **settings), gates[-1], pool

    yield start
    for gate in gates:
        gate.open.set()
    pool.shutdown()


def wait_until(condition):
    for _ in range(3000):
        if condition():
            return
        threading.Event().wait(0.01)
    raise AssertionError("the condition did not become true")


def waiting(server):
    """Return the number of requests that wait for a batch."""
    return sum(map(len, server.server.batcher("")._waiting.values()))


# --- queue, deadlines, batches ---------------------------------------------------------------------------------------


def test_a_full_queue_is_refused_at_once_and_the_others_are_answered(gated, images):
    server, gate, pool = gated(queue=3)
    accepted = [pool.submit(server.predict, images) for _ in range(3)]
    wait_until(lambda: server.server.pending[""] == 3)
    refused = server.predict(images)
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1")
    assert "queue is full" in refused.json()["error"]
    gate.open.set()
    assert [one.result().status_code for one in accepted] == [200, 200, 200]
    assert server.predict(images).status_code == 200


def test_an_expired_request_never_reaches_the_model(gated, images):
    server, gate, pool = gated(batch_size=1)
    first = pool.submit(server.predict, images)
    assert gate.started.wait(30)
    expired = server.predict(images, **{"Driftlaw-Timeout-Ms": "20"})
    assert expired.status_code == 504
    assert "deadline" in expired.json()["error"]
    gate.open.set()
    assert first.result().status_code == 200
    assert server.predict(images).status_code == 200
    assert len(gate.batches) == 2


def test_requests_that_would_expire_in_the_queue_are_refused_at_once(gated, images):
    server, gate, pool = gated(batch_size=8, deadline_ms=10_000)
    server.server.batcher("").batch_seconds, server.server.batcher("").request_images = 3.0, 8.0
    accepted = [pool.submit(server.predict, images) for _ in range(2)]
    wait_until(lambda: server.server.pending[""] == 2)
    accepted.append(pool.submit(server.predict, images))
    wait_until(lambda: server.server.pending[""] == 3)
    refused = server.predict(images)
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "9")
    gate.open.set()
    assert [one.result().status_code for one in accepted] == [200, 200, 200]


def test_a_request_whose_batch_has_started_is_answered_after_its_deadline(gated, images):
    server, gate, pool = gated()
    first = pool.submit(server.predict, images, **{"Driftlaw-Timeout-Ms": "1000"})
    assert gate.started.wait(30)
    assert not first.done()
    threading.Timer(1.5, gate.open.set).start()
    assert first.result().status_code == 200


def test_requests_share_batches_and_answer_i_belongs_to_request_i(gated):
    server, gate, pool = gated(batch_size=8)
    first = pool.submit(server.predict, make_images(100, count=1).numpy())
    assert gate.started.wait(30)
    batches = [make_images(index, count=1 + index % 3).numpy() for index in range(30)]
    answers = [pool.submit(server.predict, batch) for batch in batches]
    wait_until(lambda: waiting(server) == 30)
    gate.open.set()
    model = MethodUnderTest.create("source").adapter().model
    for batch, answer in zip(batches, answers, strict=True):
        logits = model(torch.from_numpy(batch)).softmax(1)
        found = answer.result().json()["predictions"]
        assert [row["class"] for row in found] == logits.argmax(1).tolist()
        assert [row["confidence"] for row in found] == pytest.approx(logits.amax(1).tolist(), abs=1e-5)
    assert first.result().status_code == 200
    sizes = [len(batch) for batch in gate.batches[1:]]
    assert sum(sizes) == sum(map(len, batches))
    assert max(sizes) <= 8
    assert len(sizes) < len(batches)


def test_images_of_two_tenants_are_never_in_one_batch(gated):
    server, gate, pool = gated(tenants=("a", "b"), batch_size=64)
    first = pool.submit(server.predict, make_images(100).numpy(), **{"Driftlaw-Tenant": "a"})
    assert gate.started.wait(30)
    shades = {"a": 0.25, "b": 0.75}
    sent = [
        pool.submit(server.predict, np.full((2, 3, SIZE, SIZE), shades[name]), **{"Driftlaw-Tenant": name})
        for name in "abab"
    ]
    wait_until(lambda: waiting(server) == 4)
    gate.open.set()
    assert {one.result().status_code for one in [first, *sent]} == {200}
    assert sorted(batch.unique().tolist() for batch in gate.batches[1:]) == [[0.25], [0.75]]
    assert server.predict(make_images(0).numpy()).status_code == 422
    assert server.predict(make_images(0).numpy(), **{"Driftlaw-Tenant": "c"}).status_code == 422


def test_every_tenant_may_have_its_own_adapter(run_server, images):
    server = run_server(tenants=("a", "b"), separate_adapters=True)
    first = server.predict(images, **{"Driftlaw-Tenant": "a"}).json()
    server.predict(images, **{"Driftlaw-Tenant": "a"})
    assert server.predict(images, **{"Driftlaw-Tenant": "b"}).json() == first
    steps = [server.client.get(f"/v1/status?tenant={name}").json()["steps"] for name in "ab"]
    assert steps == [2, 1]
    assert server.client.post("/v1/reset").status_code == 422
    assert server.client.post("/v1/reset?tenant=a").json()["step"] == 0
    assert server.client.get("/v1/status?tenant=b").json()["steps"] == 1


# --- bodies ----------------------------------------------------------------------------------------------------------


def test_a_body_over_the_limit_is_refused_also_if_it_is_chunked(run_server):
    server = run_server(max_body=10_000)
    read = []

    def chunks():
        for _ in range(1000):
            read.append(1)
            yield b"x" * 1000

    whole = server.client.post("/v1/predict", content=b"x" * 10_001, headers={"Content-Type": "image/png"})
    chunked = server.client.post("/v1/predict", content=chunks(), headers={"Content-Type": "image/png"})
    assert [whole.status_code, chunked.status_code] == [413, 413]
    assert "too large" in chunked.json()["error"]


def test_decompression_bombs_are_refused_before_they_are_decoded(run_server, monkeypatch):
    file = io.BytesIO()
    Image.new("L", (20_000, 20_000)).save(file, format="PNG")
    assert len(file.getvalue()) < 1_000_000
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", lambda self: pytest.fail("decoded"))
    response = run_server().client.post("/v1/predict", content=file.getvalue(), headers={"Content-Type": "image/png"})
    assert response.status_code in (400, 413)


def damaged_files():
    good = png(make_images(0).numpy()[0])
    jpeg = io.BytesIO()
    Image.new("RGB", (SIZE, SIZE), (9, 99, 199)).save(jpeg, format="JPEG")
    deep = io.BytesIO()
    Image.new("I;16", (SIZE, SIZE)).save(deep, format="PNG")
    gif = io.BytesIO()
    Image.new("P", (SIZE, SIZE)).save(gif, format="GIF")
    return {
        "empty": b"",
        "text": b"hello",
        "truncated png": good[: len(good) // 2],
        "truncated jpeg": jpeg.getvalue()[:-200],
        "wrong checksum": good[:40] + bytes([good[40] ^ 255]) + good[41:],
        "wrong checksum of pixels that can be decoded": good.replace(b"IDATx\x9c", b"IDATx\x01"),
        "compressed zeros": zlib.compress(bytes(10_000)),
        "16 bits": deep.getvalue(),
        "gif": gif.getvalue(),
    }


@pytest.mark.parametrize("name", list(damaged_files()))
def test_damaged_files_are_refused_and_the_next_prediction_is_unchanged(run_server, images, name):
    server, data = run_server(), damaged_files()[name]
    response = server.client.post("/v1/predict", files={"image": ("a.png", data, "image/png")})
    assert response.status_code in (400, 415, 422)
    assert response.json()["error"]
    assert server.predict(images).json() == run_server().predict(images).json()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b"{}",
        b'{"images": []}',
        b'{"images": "abc"}',
        b'{"images": [[[1, 2], [3]]]}',
        b'{"images": [[[NaN]]]}',
        b'{"images": null}',
        b'{"images": [' * 100_000,
        b'{"images": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"images": [[[0.5]]], "dtype": "complex64"}',
        b'{"images": 1e999}',
        b"\xff\xfe",
        json.dumps({"images": np.full((1, 3, SIZE, SIZE), 2.0).tolist()}).encode(),
        json.dumps({"images": np.full((1, 3, SIZE, SIZE), -1).tolist(), "dtype": "uint8"}).encode(),
        json.dumps({"images": np.full((1, 3, SIZE, SIZE), 0.5).tolist(), "dtype": "uint8"}).encode(),
        json.dumps({"images": np.zeros((1, 3, SIZE, SIZE + 1)).tolist()}).encode(),
    ],
    ids=range(18),
)
def test_wrong_json_is_refused(run_server, body):
    response = run_server().client.post("/v1/predict", content=body, headers=JSON)
    assert response.status_code in (400, 422)
    assert response.json()["error"]


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"Content-Type": "text/plain"}, b"x", 415),
        ({}, b"x", 415),
        ({"Content-Type": "multipart/form-data"}, b"x", 400),
        ({"Content-Type": "multipart/form-data; boundary=a"}, b"--a\r\nbad", 422),
        ({"Content-Type": "multipart/form-data; boundary=a"}, b"--a--\r\n", 422),
        (JSON | {"Driftlaw-Timeout-Ms": "soon"}, b"{}", 400),
        (JSON | {"Content-Length": "-1"}, b"", 400),
    ],
    ids=range(7),
)
def test_wrong_headers_are_refused(run_server, headers, body, status):
    response = run_server().client.post("/v1/predict", content=body, headers=headers)
    assert response.status_code == status
    assert response.json()["error"]


def test_limits_of_images_and_json(run_server):
    server = run_server(max_images=2, max_json=50_000)
    images = np.zeros((3, 3, SIZE, SIZE), dtype=np.uint8)
    many = server.client.post("/v1/predict", json={"images": images.tolist(), "dtype": "uint8"})
    large = server.client.post("/v1/predict", json={"images": [[[0.123456789] * 6000]]})
    files = [("files", (f"{index}.png", png(image), "image/png")) for index, image in enumerate(images / 255)]
    forms = server.client.post("/v1/predict", files=files)
    assert [many.status_code, large.status_code, forms.status_code] == [422, 413, 400]
