"""HTTP application of the server: routes, tokens and limits."""

from __future__ import annotations

import asyncio
import base64
import hmac
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Message

from driftlaw import __version__
from driftlaw.serving import decoding, openapi, page, protocol
from driftlaw.serving.access_log import AccessLog
from driftlaw.serving.batcher import Answer, Job, deadline_error
from driftlaw.serving.decoding import Array, SentImages
from driftlaw.serving.label_maps import LabelMap, to_png
from driftlaw.serving.metrics import Metrics
from driftlaw.serving.model_server import ACTIONS, ModelServer
from driftlaw.serving.settings import RequestError
from driftlaw.serving.status import Status

FULL = 0.7  # share of a request's deadline; the queue is full if the expected time in it is longer
LOCAL = ("127.0.0.1", "localhost", "[::1]")


class Routes:
    """What the server does with requests. ``application`` returns it for uvicorn.

    Args:
        server: the model server. The application closes it when it shuts down.
        token: what clients must send as ``Authorization: Bearer …``; None: nothing.
        admin_token: what administrators must send. If only ``token`` is given, administration is refused.
    """

    def __init__(self, server: ModelServer, token: str | None = None, admin_token: str | None = None) -> None:
        self.server, self.metrics = server, Metrics(server)
        self.token, self.admin_token = token or None, admin_token or None  # an empty variable is no token

    def application(self) -> FastAPI:
        """Return the application."""

        @asynccontextmanager
        async def lifespan(app: FastAPI) -> AsyncIterator[None]:
            yield
            await run_in_threadpool(self.server.close)

        app = FastAPI(
            title="driftlaw",
            version=__version__,
            lifespan=lifespan,
            docs_url=None,
            redoc_url=None,
            redirect_slashes=False,
        )
        app.add_middleware(AccessLog, metrics=self.metrics)
        for kind in (RequestError, HTTPException):
            app.add_exception_handler(kind, _on_error)
        app.include_router(page.router)
        use = openapi.token_of("client", self.token)
        administrate = openapi.token_of("administrator", self.token or self.admin_token)
        app.add_api_route("/v1/predict", self.predict, methods=["POST"], **openapi.PREDICT, **use)
        app.add_api_route("/v1/status", self.status, **openapi.STATUS, **use)
        app.add_api_route("/metrics", self.read_metrics, **openapi.METRICS, **use)
        for action in ACTIONS:
            route = openapi.ADMINISTRATE | administrate
            app.add_api_route(f"/v1/{action}", self.administrate, methods=["POST"], name=action, **route)
        app.add_api_route("/v2", self.server_metadata)
        app.add_api_route("/v2/health/live", self.server_metadata)
        app.add_api_route("/v2/health/ready", self.ready, **openapi.READY)
        app.add_api_route("/v2/models/{model}", self.model_metadata, **openapi.MODEL, **use)
        app.add_api_route("/v2/models/{model}/ready", self.model_ready, **openapi.MODEL_READY)
        app.add_api_route("/v2/models/{model}/infer", self.infer, methods=["POST"], **openapi.INFER, **use)
        openapi.complete(app)
        return app

    async def predict(self, request: Request) -> Response:
        """Predict images: PNG or JPEG files (multipart, or one as the body), or JSON arrays.

        If the model predicts a class per pixel, the answer has label maps, and with ``overlay=true`` also overlays.
        With ``Accept: image/png``, the answer for one image is its label map, or its overlay.
        """
        answer, sent = await self.answer(request, self._read_images)
        return await run_in_threadpool(self._encode_predictions, answer, sent)

    def _encode_predictions(self, answer: Answer, sent: SentImages) -> Response:
        rows = decoding.describe(answer.outputs, self.server.class_names)
        for index, output in enumerate(answer.outputs):
            if isinstance(output, LabelMap):
                files = {"label_map": to_png(output.image(sent.sizes[index]))}
                if sent.wants_overlay:
                    files["overlay"] = to_png(output.overlay(sent.image(index, self.server.settings)))
                if sent.wants_png:
                    return Response(files.get("overlay", files["label_map"]), media_type="image/png")
                rows[index] |= {name: base64.b64encode(file).decode() for name, file in files.items()}
        return JSONResponse({"model": self.server.name, "step": answer.step, "mode": answer.mode, "predictions": rows})

    async def status(self, request: Request) -> Status:
        """Return what the adapter of a tenant did recently."""
        self.check_token(request)
        status: Status = await run_in_threadpool(self.server.status, self._tenant(request, required=False))
        return status

    async def administrate(self, request: Request) -> dict[str, Any]:
        """Pause, resume, reset or roll back the adapter of a tenant."""
        self.check_token(request, administrator=True)
        tenant = self._tenant(request, required=self.server.settings.separate_adapters)
        return await self.server.act(request.url.path.rpartition("/")[2], tenant)

    async def read_metrics(self, request: Request) -> Response:
        """Return the metrics for Prometheus."""
        self.check_token(request)
        return Response(self.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    async def server_metadata(self) -> dict[str, Any]:
        """Return name and version of the server; it is live if there is an answer."""
        return {"name": "driftlaw", "version": __version__, "extensions": ["binary_tensor_data"], "live": True}

    async def model_ready(self, model: str) -> Response:
        """Return what ``ready`` does, for the model of this name."""
        self._check_name(model)
        return await self.ready()

    async def ready(self) -> Response:
        """Return status 200 while requests are accepted, else 503."""
        return JSONResponse({"ready": not self.server.draining}, 503 if self.server.draining else 200)

    async def model_metadata(self, request: Request, model: str) -> dict[str, Any]:
        """Return names, types and shapes of the tensors of the model."""
        self.check_token(request)
        self._check_name(model)
        return protocol.model_metadata(model, len(self.server.class_names), self.server.image_size)

    async def infer(self, request: Request, model: str) -> Response:
        """Predict the images of a request of the Open Inference Protocol."""
        self._check_name(model)
        answer, asked = await self.answer(request, self._read_tensors)
        body, headers = await run_in_threadpool(protocol.encode_answer, model, answer, asked)
        return Response(body, headers=headers)

    def _check_name(self, model: str) -> None:
        if model != self.server.name:
            raise RequestError(404, f"There is no such model. This server has '{self.server.name}'.")

    def _tenant(self, request: Request, *, required: bool = True) -> str:
        """Return the tenant that a request names in its header or query, or the first one if it may be missing."""
        known = self.server.settings.tenants
        given = request.headers.get("driftlaw-tenant") or request.query_params.get("tenant") or ""
        if not given and not required:
            given = "".join(known[:1])
        if known and given not in known:
            raise RequestError(422, "Send the header Driftlaw-Tenant with the name of one of the server's tenants.")
        return given if known else ""

    def check_token(self, request: Request, *, administrator: bool = False) -> None:
        """Raise RequestError if a request may not use a route. Tokens are compared in constant time.

        Without tokens, only local names of the server are accepted, so that web pages of others cannot use it.
        """
        headers = request.headers
        host, origin = headers.get("host", ""), headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            raise RequestError(403, "The request comes from a web page of another site.")
        if self.token is None and (not administrator or self.admin_token is None):
            if host.rpartition(":")[0] not in LOCAL and host not in LOCAL:
                raise RequestError(403, "Without a token, the server answers only requests for localhost.")
            return
        scheme, _, given = headers.get("authorization", "").partition(" ")
        sent = given.strip().encode() if scheme.lower() == "bearer" else b""
        accepted = [self.admin_token] if administrator else [self.token, self.admin_token]
        found = [hmac.compare_digest(sent, token.encode()) for token in accepted if token is not None]
        if administrator and not found:
            raise RequestError(403, "Administration is off, because the server has no administrator's token.")
        if not any(found):
            reason = f"Send the {'administrator' if administrator else 'client'}'s token: Authorization: Bearer TOKEN."
            raise RequestError(401, reason, {"WWW-Authenticate": "Bearer"})

    async def answer(self, request: Request, read: Any) -> tuple[Any, Any]:
        """Admit a request, read its images, predict them, and return the answer and what else ``read`` returned.

        The deadline includes the time in which the body is received. A full queue is noticed before that.
        """
        self.check_token(request)
        server, settings, tenant = self.server, self.server.settings, self._tenant(request)
        given = decoding.header_number(request.headers, "driftlaw-timeout-ms")
        timeout = (settings.deadline_ms if given is None else min(settings.deadline_ms, given)) / 1000
        deadline = time.monotonic() + timeout
        if server.draining:
            raise RequestError(503, "The server is shutting down.")
        ahead = server.pending[tenant] if settings.separate_adapters else sum(server.pending.values())
        wait = server.batcher(tenant).expected_wait(ahead)
        if server.pending[tenant] >= settings.queue or wait > FULL * timeout:
            after = {"Retry-After": str(min(60, max(1, math.ceil(wait))))}
            raise RequestError(429, f"The queue is full ({server.pending[tenant]} requests). Retry later.", after)
        server.pending[tenant] += 1
        try:
            async with asyncio.timeout(timeout):
                images, extra = await read(self._limited(request))
            request.state.log |= {"tenant": tenant, "images": len(images)}
            answer = await server.predict(Job(images, tenant, deadline))
        except TimeoutError:
            raise deadline_error() from None
        finally:
            server.pending[tenant] -= 1
        request.state.log |= {"step": answer.step, "predictions": answer.summary()}
        return answer, extra

    def _limited(self, request: Request) -> Request:
        """Return a request whose body raises RequestError when it exceeds the limit, also if it is chunked."""
        limit, received = self.server.settings.max_body, 0
        error = RequestError(413, f"The body is too large. Send at most {limit:,} bytes.")
        if (decoding.header_number(request.headers, "content-length") or 0) > limit:
            raise error

        async def receive() -> Message:
            nonlocal received
            message = await request.receive()
            received += len(message.get("body", b""))
            if received > limit:
                raise error
            return message

        return Request(request.scope, receive)

    async def _read_images(self, request: Request) -> tuple[Array, SentImages]:
        server, settings = self.server, self.server.settings
        size, overlay = server.image_size, request.query_params.get("overlay", "false")
        if overlay not in ("true", "false"):
            raise RequestError(422, "The query parameter overlay is neither 'true' nor 'false'.")
        accepted, kind = (
            request.headers.get(name, "").partition(",")[0].partition(";")[0].strip().lower()
            for name in ("accept", "content-type")
        )
        sent = SentImages(wants_png=accepted == "image/png", wants_overlay=overlay == "true")
        if (sent.wants_png or sent.wants_overlay) and not size.is_dense:
            raise RequestError(406, "This model predicts one class per image. There are no label maps and overlays.")
        if kind == "application/json":
            images = await run_in_threadpool(decoding.decode_json, await request.body(), size, settings)
            sent.images, sent.sizes = list(images), [(size.width, size.height)] * len(images)
        else:
            files = await self._read_files(request, kind)
            images, sent.sizes = await run_in_threadpool(decoding.decode_files, files, size, settings)
            sent.images = files if sent.wants_overlay else ()
        if sent.wants_png and len(images) != 1:
            raise RequestError(406, f"The request has {len(images)} images. Send one, or accept application/json.")
        return images, sent

    async def _read_files(self, request: Request, kind: str) -> list[bytes]:
        if kind in ("image/png", "image/jpeg"):
            return [await request.body()]
        if kind != "multipart/form-data":
            raise RequestError(415, "Send image/png, image/jpeg, multipart/form-data with files, or application/json.")
        most = self.server.settings.max_images
        try:
            async with request.form(max_files=most, max_fields=most) as form:
                return [await part.read() for _, part in form.multi_items() if isinstance(part, UploadFile)]
        except (RequestError, ClientDisconnect):
            raise
        except Exception as error:  # the parser of forms raises several types
            reason = getattr(error, "detail", type(error).__name__)
            raise RequestError(400, f"The form cannot be read: {reason}") from error

    async def _read_tensors(self, request: Request) -> tuple[Array, protocol.InferRequest]:
        length, body = decoding.header_number(request.headers, protocol.LENGTH), await request.body()
        size, settings = self.server.image_size, self.server.settings
        images, asked = await run_in_threadpool(protocol.parse_request, body, length, size, settings)
        return images, asked


async def _on_error(request: Request, error: Any) -> Response:
    reason = str(getattr(error, "detail", error))
    request.state.log["reason"] = reason
    return JSONResponse({"error": reason}, error.status_code, error.headers)
