"""Client of ``driftlaw serve``; it needs the standard library only."""

from __future__ import annotations

import base64
import http.client
import json
import os
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from driftlaw.errors import DriftlawError, UsageError

TYPES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg"}


class ServerError(DriftlawError):
    """The server refused a request (``status`` is its HTTP status), or did not answer (None)."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class Client:
    """A client of ``driftlaw serve``: ``driftlaw.Client("http://127.0.0.1:8000").predict("photos/")``.

    Requests that are refused because the queue of the server is full are repeated after the time that it states.

    Args:
        url: address of the server.
        token: token of a client or an administrator; by default the environment variable DRIFTLAW_TOKEN.
        tenant: whose images are sent, if the server has tenants.
        timeout: seconds to wait for an answer.
        retries: how often a request is repeated if the queue is full.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        token: str | None = None,
        tenant: str | None = None,
        timeout: float = 60.0,
        retries: int = 10,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise UsageError(f"'{url}' is not the address of a server. Expected such as http://127.0.0.1:8000.")
        self.url, self.timeout, self.retries = url.rstrip("/"), timeout, retries
        token = token if token is not None else os.environ.get("DRIFTLAW_TOKEN")
        self._headers = {"Driftlaw-Tenant": tenant} if tenant else {}
        self._headers |= {"Authorization": f"Bearer {token}"} if token else {}
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def predict(self, images: Any, batch_size: int = 64, *, overlay: bool = False) -> list[dict[str, Any]]:
        """Return one dict per image with ``class``, ``label`` and ``confidence``.

        If the network predicts a class per pixel, it has instead ``classes``, a list of dicts with ``class``,
        ``label``, ``share`` and ``confidence``, and ``label_map``, the bytes of a PNG file.

        Args:
            images: a PNG or JPEG file, a folder of them (in the order of their names), or a list of files; or an array
                or tensor (n, 3, h, w), uint8 or in [0, 1].
            batch_size: number of images per request.
            overlay: whether dicts with a label map also have ``overlay``, the bytes of a PNG file.

        Raises:
            ServerError: the server refused a request, or did not answer.
        """
        if isinstance(images, str | os.PathLike):
            path = Path(images)
            images = sorted(one for one in path.iterdir() if one.suffix.lower() in TYPES) if path.is_dir() else [path]
        predictions: list[dict[str, Any]] = []
        for first in range(0, len(images), batch_size):
            part = images[first : first + batch_size]
            encode = _encode_files if isinstance(part[0], str | os.PathLike) else _encode_array
            route = "/v1/predict?overlay=true" if overlay else "/v1/predict"
            predictions += self._request("POST", route, *encode(part))["predictions"]
        for row in predictions:
            row |= {key: base64.b64decode(row[key]) for key in ("label_map", "overlay") if key in row}
        return predictions

    def status(self) -> dict[str, Any]:
        """Return the state of the server, see ``driftlaw.serving.status.Status``."""
        return self._request("GET", "/v1/status")

    def pause(self) -> dict[str, Any]:
        """Predict without updates from now on. This and the next three calls need the administrator's token."""
        return self._request("POST", "/v1/pause")

    def resume(self) -> dict[str, Any]:
        """Update the model again."""
        return self._request("POST", "/v1/resume")

    def reset(self) -> dict[str, Any]:
        """Return to the source model."""
        return self._request("POST", "/v1/reset")

    def rollback(self) -> dict[str, Any]:
        """Return to the last snapshot before the current step."""
        return self._request("POST", "/v1/rollback")

    def _request(self, method: str, path: str, body: bytes | None = None, kind: str = "") -> dict[str, Any]:
        url, headers = self.url + path, self._headers | ({"Content-Type": kind} if kind else {})
        request, retries = urllib.request.Request(url, body, headers, method=method), self.retries
        while True:
            try:
                with self._opener.open(request, timeout=self.timeout) as response:
                    answer: dict[str, Any] = json.load(response)
                    return answer
            except urllib.error.HTTPError as error:
                if error.code == 429 and retries:
                    retries -= 1
                    time.sleep(min(60.0, float(error.headers.get("Retry-After") or 1)))
                    continue
                text = error.read(10_000).decode(errors="replace")
                raise ServerError(f"{url} answered with status {error.code}: {text}", error.code) from error
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise ServerError(f"There was no answer from {url} ({error}). Check the address.") from error


def _encode_array(images: Any) -> tuple[bytes, str]:
    values = {"images": images.tolist(), "dtype": "uint8" if str(images.dtype).endswith("uint8") else "float32"}
    return json.dumps(values).encode(), "application/json"


def _encode_files(paths: Sequence[str | os.PathLike[str]]) -> tuple[bytes, str]:
    boundary, parts = uuid.uuid4().hex, []
    for path in map(Path, paths):
        if path.suffix.lower() not in TYPES:
            raise UsageError(f"{path} is not a PNG or JPEG file. Convert it, or send an array.")
        head = f'Content-Disposition: form-data; name="images"; filename="image{path.suffix}"'
        parts.append(f"--{boundary}\r\n{head}\r\n\r\n".encode() + path.read_bytes() + b"\r\n")
    body = b"".join([*parts, f"--{boundary}--\r\n".encode()])
    return body, f"multipart/form-data; boundary={boundary}"
