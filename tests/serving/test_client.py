"""driftlaw.Client against a server in this process."""

import io
import urllib.error

import numpy as np
import pytest

import driftlaw
from driftlaw.errors import UsageError
from driftlaw.serving.client import Client, ServerError
from tests.serving.running import png


class Opener:
    """Sends requests of a client to a server in this process.

    Args:
        running: the server.
        refusals: how many requests are refused because the queue is full.
    """

    def __init__(self, running, refusals=0):
        self.running, self.refusals, self.sent = running, refusals, 0

    def open(self, request, timeout):
        self.sent += 1
        path = request.full_url.removeprefix("http://localhost:8000")
        if self.refusals:
            self.refusals -= 1
            raise urllib.error.HTTPError(path, 429, "full", {"Retry-After": "0.5"}, io.BytesIO(b"{}"))
        content = {"content": request.data} if request.data is not None else {}
        response = self.running.client.request(request.method, path, headers=dict(request.header_items()), **content)
        if response.status_code >= 400:
            raise urllib.error.HTTPError(path, response.status_code, "", response.headers, io.BytesIO(response.content))
        return io.BytesIO(response.content)


@pytest.fixture
def connect(run_server):
    def make(refusals=0, tokens=(None, None), **options):
        client = Client("http://localhost:8000", **options)
        client._opener = Opener(run_server(tokens=tokens), refusals)
        return client

    return make


def test_files_folders_and_arrays_have_the_same_predictions(connect, images, tmp_path):
    pixels = (images * 255).round().astype(np.uint8)
    for index, image in enumerate(images):
        (tmp_path / f"{index}.png").write_bytes(png(image))
    (tmp_path / "notes.txt").write_text("no image")
    wanted = connect().predict(pixels)
    assert len(wanted) == 8
    assert set(wanted[0]) == {"class", "label", "confidence"}
    assert connect().predict(tmp_path) == wanted
    assert connect().predict([tmp_path / f"{index}.png" for index in range(8)]) == wanted
    assert connect().predict(str(tmp_path / "0.png"))[0]["class"] == connect().predict(pixels[:1])[0]["class"]


def test_many_images_are_sent_in_several_requests(connect, images):
    client = connect()
    assert len(client.predict(images, batch_size=3)) == 8
    assert client._opener.sent == 3


def test_administration(connect, images):
    client = connect(tokens=("use", "admin"), token="admin")
    client.predict(images)
    client.predict(images)
    assert client.pause() == {"mode": "paused", "step": 2}
    assert client.resume()["mode"] == "adapting"
    assert client.rollback()["step"] == 1
    assert client.reset()["step"] == 0
    assert client.status()["images"] == 16


def test_requests_are_repeated_if_the_queue_is_full(connect, images, monkeypatch):
    waited = []
    monkeypatch.setattr("time.sleep", waited.append)
    client = connect(refusals=2)
    assert len(client.predict(images)) == 8
    assert waited == [0.5, 0.5]
    with pytest.raises(ServerError, match="429") as error:
        connect(refusals=2, retries=1).predict(images)
    assert error.value.status == 429


def test_errors_state_the_reason(connect, images):
    with pytest.raises(ServerError, match="Authorization") as error:
        connect(tokens=("use", None)).predict(images)
    assert error.value.status == 401
    with pytest.raises(ServerError, match="no answer"):
        driftlaw.Client("http://127.0.0.1:9").status()
    with pytest.raises(UsageError, match="not the address"):
        Client("localhost:8000")
    with pytest.raises(UsageError, match="not a PNG"):
        connect().predict(["a.gif"])
