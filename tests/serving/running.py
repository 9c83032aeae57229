"""A server around a tiny network, in this process."""

import io
import json

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("fastapi", reason="needs the extra 'serve'")
pytest.importorskip("prometheus_client", reason="needs the extra 'serve'")
pytest.importorskip("httpx", reason="starlette's test client needs it")

from starlette.testclient import TestClient

from driftlaw.serving.app import Routes
from driftlaw.serving.model_server import ModelServer
from driftlaw.serving.network_input import NetworkInput
from driftlaw.serving.settings import ServerSettings
from driftlaw.testing.fixtures import CLASSES, SIZE, MethodUnderTest


class Running:
    """A server in this process and a client of it.

    Args:
        folder: where snapshots are kept.
        method: the method.
        adapter: another adapter instead of a tiny network with the guard.
        tokens: of clients and administrators.
        image_size: the network's, if the adapter is another.
        **settings: settings of the server.
    """

    def __init__(self, folder, method="tent", adapter=None, tokens=(None, None), image_size=None, **settings):
        def make(tenant):
            guard = {"snapshots": str(folder / tenant), "snapshot_steps": 1, "keep": 10}
            return adapter or MethodUnderTest.create(method, {"guard": guard}).adapter()

        chosen = ServerSettings(**{"wait_ms": 0} | settings)
        self.server = ModelServer(
            {owner: make(owner) for owner in chosen.adapter_names()},
            chosen,
            name="tiny",
            class_names=[f"class {index}" for index in range(CLASSES)],
            image_size=image_size or NetworkInput(SIZE, SIZE),
        )
        app = Routes(self.server, *tokens).application()
        self.client = TestClient(app, base_url="http://localhost:8000")

    def predict(self, images, **headers):
        """Send images as JSON."""
        body = json.dumps({"images": np.asarray(images).tolist()})
        return self.client.post("/v1/predict", content=body, headers={"Content-Type": "application/json"} | headers)


def png(image):
    """Return an image (3, h, w) in [0, 1] as a PNG file."""
    file = io.BytesIO()
    pixels = (np.asarray(image) * 255).round().astype(np.uint8).transpose(1, 2, 0)
    Image.fromarray(pixels).save(file, format="PNG")
    return file.getvalue()
