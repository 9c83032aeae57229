"""Settings of the server, and the error that a request is refused with."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, PositiveFloat, PositiveInt, StringConstraints

from driftlaw.errors import DriftlawError, UsageError
from driftlaw.settings import Settings

Tenant = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]


class ServerSettings(Settings):
    """Settings of ``driftlaw serve``: ``--set server.batch_size=32``."""

    batch_size: PositiveInt = 64
    """Number of images at which a batch is full. A request is never split, so one large request may exceed it."""
    wait_ms: float = Field(default=5.0, ge=0, le=10_000)
    """How long the first request of a batch waits for others, in milliseconds."""
    queue: PositiveInt = 128
    """Number of requests per tenant that may be in progress. More are refused with status 429, and so are requests that
    would probably not be predicted before their deadline."""
    deadline_ms: PositiveFloat = 10_000
    """Time after which a request is refused with status 504, in milliseconds, unless it is being predicted."""
    max_images: PositiveInt = 256
    """Largest number of images in a request."""
    max_body: PositiveInt = 32 * 2**20
    """Largest body of a request, in bytes."""
    max_json: PositiveInt = 4 * 2**20
    """Largest JSON text in a request, in bytes. Parsing it stops all other requests for about 10 ms per MiB."""
    max_pixels: PositiveInt = 16_000_000
    """Largest number of pixels of an image file, checked before it is decoded."""
    tenants: tuple[Tenant, ...] = ()
    """Names of the tenants. If there are any, every request must name its tenant in the header Driftlaw-Tenant."""
    separate_adapters: bool = False
    """Whether every tenant has its own adapter. Batches never contain images of two tenants in either case."""

    def adapter_names(self) -> tuple[str, ...]:
        """Return the tenants that have an adapter of their own; one empty name if all share one."""
        if self.separate_adapters and not self.tenants:
            raise UsageError("separate_adapters needs tenants, such as --set server.tenants=['a','b'].")
        return self.tenants if self.separate_adapters else ("",)


class RequestError(DriftlawError):
    """A request is refused: its HTTP status, the reason, and headers of the response.

    Args:
        status_code: HTTP status, 400 to 599.
        reason: what was found, what was expected, what to do.
        headers: more headers, such as Retry-After.
    """

    def __init__(self, status_code: int, reason: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(reason)
        self.status_code, self.headers = status_code, dict(headers or {})
