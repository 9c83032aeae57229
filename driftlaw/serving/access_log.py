"""Access log: one JSON line per answer, written before the answer is sent, and the metrics of requests."""

import json
import logging
import time
from typing import Any

from fastapi.responses import JSONResponse
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from driftlaw.serving.metrics import Metrics

request_log = logging.getLogger("driftlaw.requests")


class AccessLog:
    """Middleware that logs every answer before it is sent, and counts it.

    Successful GET requests are counted but not logged. Routes add to ``request.state.log``.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.monotonic()
        sent = Headers(scope=scope).get("x-request-id")
        log: dict[str, Any] = {} if sent is None else {"id": sent[:100]}
        scope.setdefault("state", {})["log"] = log
        answered = False

        async def logged_send(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start":
                answered = True
                seconds, status = time.monotonic() - started, message["status"]
                route = getattr(scope.get("route"), "path", "other")
                self.metrics.requests.labels(route, status).inc()
                self.metrics.request_seconds.labels(route).observe(seconds)
                if scope["method"] != "GET" or status >= 400:
                    line = {"time": round(time.time(), 3), "method": scope["method"], "path": scope["path"][:200]}
                    line |= {"status": status, "ms": round(1000 * seconds, 2), **log}
                    request_log.info(json.dumps(line))
            await send(message)

        try:
            await self.app(scope, receive, logged_send)
        except ClientDisconnect:
            pass
        except Exception as error:
            logging.getLogger(__name__).exception("A request failed.")
            if not answered:
                log["reason"] = f"The server failed ({type(error).__name__}). Its log has the details."
                await JSONResponse({"error": log["reason"]}, 500)(scope, receive, logged_send)
