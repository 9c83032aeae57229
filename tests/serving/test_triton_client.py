"""The server answers a client that was written for Triton."""

import numpy as np
import pytest

from driftlaw.datasets import load_dataset

triton = pytest.importorskip("tritonclient.http", reason="tritonclient[http] is not installed")

from tests.serving.test_process import start  # noqa: E402 (skips without the extra 'serve')


def test_tritonclient_gets_predictions(tmp_path):
    process, other, _ = start(tmp_path)
    try:
        client = triton.InferenceServerClient(other.url.removeprefix("http://"))
        name = "wrn_16_1-cifar10"
        assert client.is_server_live()
        assert client.is_model_ready(name)
        pixels = load_dataset("cifar10-embedded").images(range(4)).transpose(0, 3, 1, 2)
        tensor = triton.InferInput("images", pixels.shape, "UINT8")
        tensor.set_data_from_numpy(np.ascontiguousarray(pixels))
        other.pause()
        answer = client.infer(name, [tensor])
        assert answer.as_numpy("logits").shape == (4, 10)
        assert answer.as_numpy("prediction").tolist() == [row["class"] for row in other.predict(pixels)]
        with pytest.raises(triton.InferenceServerException, match="no such model"):
            client.infer("other", [tensor])
    finally:
        process.kill()
        process.communicate()
