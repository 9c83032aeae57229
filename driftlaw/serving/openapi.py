"""OpenAPI document of the server: bodies, parameters, tokens and errors that FastAPI does not find in the routes."""

from typing import Any, Literal

from fastapi import FastAPI, Security
from fastapi.responses import PlainTextResponse
from fastapi.security import HTTPBearer
from pydantic import BaseModel, Field
from pydantic.json_schema import models_json_schema

from driftlaw.serving.protocol import LENGTH, InferRequest
from driftlaw.serving.status import ClassShare, Mode

Image = list[list[list[float]]]


class Error(BaseModel):
    """Answer to a request that was refused, or that failed."""

    error: str


class ImageArrays(BaseModel):
    """Images (n, 3, h, w), or one (3, h, w): ``float32`` in [0, 1], or ``uint8``."""

    images: Image | list[Image]
    dtype: Literal["float32", "uint8"] = "float32"


class Prediction(BaseModel):
    """Prediction of an image; None if the logits were not finite."""

    prediction: int | None = Field(alias="class")
    label: str
    confidence: float | None


class LabelMapPrediction(BaseModel):
    """Prediction of a network with a class per pixel: PNG files in base64, of the size of the sent image.

    A pixel of ``label_map`` (8 bits, gray) is the index of its class, or 255 if the logits were not finite.
    """

    classes: list[ClassShare]
    label_map: str
    overlay: str | None = None


class Predictions(BaseModel):
    """One prediction per image, and the number of steps and the mode of the adapter after its batch."""

    model: str
    step: int
    mode: Mode
    predictions: list[Prediction | LabelMapPrediction]


class AdapterState(BaseModel):
    """Mode and number of steps of an adapter after an action of an administrator."""

    mode: Mode
    step: int


class Tensor(BaseModel):
    """An output of the Open Inference Protocol; None where logits are not finite. Binary ones follow the JSON text."""

    name: Literal["logits", "prediction"]
    datatype: Literal["FP32", "INT64", "UINT8"]
    shape: list[int]
    data: list[float | None] = []
    parameters: dict[str, int] = {}


class InferAnswer(BaseModel):
    """Answer of the Open Inference Protocol."""

    model_name: str
    model_version: str
    outputs: list[Tensor]
    id: str = ""


class Ready(BaseModel):
    """Whether requests are accepted."""

    ready: bool


REASONS = {
    400: "The body or a header is damaged.",
    401: "The token is missing or wrong.",
    403: "A web page of another site sent the request, or administration is off.",
    404: "There is no such model.",
    406: "The answer cannot have a label map or an overlay, or not as one PNG file.",
    409: "There is no snapshot to return to.",
    413: "The body or an image is too large.",
    415: "The content type, or the type of an image, is not supported.",
    422: "The images do not fit the network, or the tenant is unknown.",
    429: "The queue is full. The header Retry-After says how many seconds to wait.",
    500: "The model failed.",
    503: "The server is shutting down.",
    504: "The deadline passed; the images did not reach the model.",
}


def _describe(*errors: int, parameters: Any = None, body: Any = None, **more: Any) -> dict[str, Any]:
    """Return keyword arguments of ``FastAPI.add_api_route``: errors by status, parameters, body by content type."""
    content = {"requestBody": {"required": True, "content": body}} if body else {}
    error = {"application/json": _json(Error)}
    responses: dict[int, Any] = {status: {"description": REASONS[status], "content": error} for status in errors}
    return {"responses": responses, "openapi_extra": {"parameters": parameters or [], **content}} | more


def _json(model: type[BaseModel]) -> dict[str, Any]:
    return {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}


FILE = {"type": "string", "format": "binary"}
FORM = {"type": "object", "additionalProperties": {"type": "array", "items": FILE, "minItems": 1}, "minProperties": 1}
IMAGES = {"application/json": _json(ImageArrays), "multipart/form-data": {"schema": FORM}}
IMAGES |= {"image/png": {"schema": FILE}, "image/jpeg": {"schema": FILE}}
TENSORS = {"application/json": _json(InferRequest), "application/octet-stream": {"schema": FILE}}
NUMBER = {"type": "integer", "minimum": 0, "maximum": 10**15 - 1}
TENANT = {"name": "Driftlaw-Tenant", "in": "header", "schema": {"type": "string"}}
TENANTS = [TENANT, {"name": "tenant", "in": "query", "schema": {"type": "string"}}]
TO_PREDICT = [*TENANTS, {"name": "Driftlaw-Timeout-Ms", "in": "header", "schema": NUMBER}]
TO_INFER = [*TO_PREDICT, {"name": LENGTH, "in": "header", "schema": NUMBER}]
OVERLAY = {"name": "overlay", "in": "query", "schema": {"type": "boolean", "default": False}}
NOT_PREDICTED = (400, 401, 403, 413, 422, 429, 500, 503, 504)

PREDICT = _describe(
    *NOT_PREDICTED, 406, 415, parameters=[*TO_PREDICT, OVERLAY], body=IMAGES, response_model=Predictions
)
PREDICT["responses"][200] = {"content": {"image/png": {"schema": FILE}}}
INFER = _describe(*NOT_PREDICTED, 404, parameters=TO_INFER, body=TENSORS, response_model=InferAnswer)
INFER["responses"][200] = {"content": {"application/octet-stream": {"schema": FILE}}}
STATUS = _describe(401, 403, 422, parameters=TENANTS)
ADMINISTRATE = _describe(401, 403, 409, 422, parameters=TENANTS, response_model=AdapterState)
METRICS = _describe(401, 403, response_class=PlainTextResponse)
READY: dict[str, Any] = {"response_model": Ready, "responses": {503: {"model": Ready, "description": REASONS[503]}}}
MODEL_READY = _describe(404, response_model=Ready)
MODEL_READY["responses"] |= READY["responses"]
MODEL = _describe(401, 403, 404)


def token_of(owner: str, token: str | None) -> dict[str, Any]:
    """Return the keyword argument that describes whose token a route needs. ``Routes.check_token`` checks it."""
    return {"dependencies": [Security(HTTPBearer(scheme_name=owner, auto_error=False))] if token else []}


def complete(app: FastAPI) -> None:
    """Add the schemas of bodies and errors to the document of an application that has all its routes."""
    _, schemas = models_json_schema(
        [(Error, "validation"), (ImageArrays, "validation"), (InferRequest, "validation")],
        ref_template="#/components/schemas/{model}",
    )
    app.openapi()["components"]["schemas"] |= schemas["$defs"]  # FastAPI keeps the document
