"""Open Inference Protocol (version 2) of KServe and Triton: requests and answers, with binary tensors.

The input is ``images``: FP32 in [0, 1] or UINT8, shape (n, 3, h, w). Outputs are ``logits`` (FP32) and ``prediction``
(INT64, −1 where logits are not finite). With a class per pixel the only output is ``prediction``: label maps (n, h, w),
UINT8, 255 where logits are not finite.
"""

import json
import math
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, Field, ValidationError

from driftlaw.errors import describe_validation
from driftlaw.serving.batcher import Answer
from driftlaw.serving.decoding import Array, check_images, parse_json, to_array
from driftlaw.serving.network_input import NetworkInput
from driftlaw.serving.settings import RequestError, ServerSettings

LENGTH = "Inference-Header-Content-Length"  # states how many bytes of a body are JSON; tensors follow


class InputTensor(BaseModel):
    """A tensor of a request; its values are in ``data``, or follow the JSON text as bytes."""

    name: Literal["images"]
    datatype: Literal["FP32", "UINT8"]
    shape: list[int] = Field(min_length=3, max_length=4)
    data: list[Any] | None = None
    parameters: dict[str, Any] = {}


class RequestedOutput(BaseModel):
    """An output that a request asks for."""

    name: Literal["logits", "prediction"]
    parameters: dict[str, Any] = {}


class InferRequest(BaseModel):
    """JSON part of a request."""

    id: str | None = Field(default=None, max_length=256)
    inputs: list[InputTensor] = Field(min_length=1, max_length=1)
    outputs: list[RequestedOutput] = Field(default=[], max_length=2)
    parameters: dict[str, Any] = {}


def parse_request(
    body: bytes, length: int | None, size: NetworkInput, settings: ServerSettings
) -> tuple[Array, InferRequest]:
    """Return the images of a request, whose first ``length`` bytes are JSON text (None: all), and its JSON part."""
    text, blob = (body, b"") if length is None else (body[:length], body[length:])
    try:
        asked = InferRequest.model_validate(parse_json(text, settings))
    except ValidationError as error:
        raise RequestError(400, f"The request is not valid: {describe_validation(error)}.") from error
    if size.is_dense and any(output.name == "logits" for output in asked.outputs):
        raise RequestError(422, "This model predicts a class per pixel and has no output 'logits'. Use 'prediction'.")
    tensor = asked.inputs[0]
    dtype = np.dtype("float32" if tensor.datatype == "FP32" else "uint8")
    if tensor.data is not None:
        values = to_array(tensor.data, str(dtype)).flatten()
    else:
        values = np.frombuffer(bytearray(blob[: len(blob) // dtype.itemsize * dtype.itemsize]), dtype)
    if min(tensor.shape) < 1 or values.size != math.prod(tensor.shape):
        raise RequestError(400, f"The shape {tensor.shape} does not fit the {values.size} values of the tensor.")
    return check_images(values.reshape(tensor.shape), size, settings), asked


def encode_answer(model: str, answer: Answer, asked: InferRequest) -> tuple[bytes, dict[str, str]]:
    """Return the body of an answer and its headers, with the outputs that the request asks for."""
    tensors = {"prediction": ("UINT8", answer.predictions())}
    if not isinstance(answer.outputs, list):
        tensors = {"logits": ("FP32", answer.outputs.astype("<f4"))}
        tensors |= {"prediction": ("INT64", answer.predictions().astype("<i8"))}
    outputs, blobs = [], []
    for output in asked.outputs or [RequestedOutput.model_validate({"name": name}) for name in tensors]:
        datatype, values = tensors[output.name]
        entry: dict[str, Any] = {"name": output.name, "datatype": datatype, "shape": list(values.shape)}
        if output.parameters.get("binary_data", asked.parameters.get("binary_data_output")) is True:
            blobs.append(values.tobytes())
            entry["parameters"] = {"binary_data_size": len(blobs[-1])}
        else:
            entry["data"] = [number if math.isfinite(number) else None for number in values.flatten().tolist()]
        outputs.append(entry)
    body = {"model_name": model, "model_version": "1", "outputs": outputs}
    text = json.dumps(body if asked.id is None else body | {"id": asked.id}).encode()
    if not blobs:
        return text, {"Content-Type": "application/json"}
    return b"".join([text, *blobs]), {"Content-Type": "application/octet-stream", LENGTH: str(len(text))}


def model_metadata(name: str, classes: int, size: NetworkInput) -> dict[str, Any]:
    """Return names, types and shapes of the tensors of a model."""
    inputs = [{"name": "images", "datatype": "FP32", "shape": [-1, 3, size.height, size.width]}]
    outputs: list[dict[str, Any]] = [{"name": "logits", "datatype": "FP32", "shape": [-1, classes]}]
    outputs += [{"name": "prediction", "datatype": "INT64", "shape": [-1]}]
    if size.is_dense:
        outputs = [{"name": "prediction", "datatype": "UINT8", "shape": [-1, size.height, size.width]}]
    return {"name": name, "versions": ["1"], "platform": "driftlaw", "inputs": inputs, "outputs": outputs}
