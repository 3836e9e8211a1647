"""A request in progress, with the fields and methods that the dispatcher and the authentication need before the handler runs."""

from __future__ import annotations

from typing import Protocol

from tidelog.broker.dispatch.served_api import ServedApi
from tidelog.broker.requests.request import Request
from tidelog.wire.codec import Bytes


class FramedRequest(Request, Protocol):
    """A request and its frame. Some fields keep header values of the connection's last request, so that equal ones are not parsed
    again.
    """

    served: ServedApi | None
    """The API and version of the last request; None before the first request."""
    started_ns: int
    client_id_bytes: bytes
    client_id_length: int
    """The length of the client id in the last request's header: -1 for null, -2 before the first request."""
    header_bytes: int
    """The length of the last request's header in bytes, without tagged fields."""

    def respond_chunks(self, chunks: list[Bytes]) -> None:
        """Send the encoded bytes of a delayed response; an empty list means that the request gets no response."""

    def keep_frame(self, data: memoryview, position: int, end: int) -> memoryview:
        """Return `data[position:end]` of the current frame in memory that the connection does not overwrite.

        The bytes count against `queued.max.request.bytes` until `discount` releases them.
        """

    def discount(self, size: int) -> None:
        """Release the memory of a frame that was kept."""
