"""A request on its way, as those see it that stand before its handler: the dispatcher, and what authenticates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidelog.broker.server.request import Request

if TYPE_CHECKING:
    from tidelog.broker.server.served_api import ServedApi
    from tidelog.wire.codec import Bytes


class FramedRequest(Request, Protocol):
    """A request with the frame that it came in, and the connection's memory of the last one's header."""

    served: ServedApi | None
    """The last request; None until the connection's first one is served."""
    started_ns: int
    client_id_bytes: bytes
    client_id_length: int
    """As in the last request's header: -1 for null, -2 before the first one."""
    header_bytes: int
    """How long the last request's header was, tagged fields left out."""

    def respond_chunks(self, chunks: list[Bytes]) -> None:
        """Send the bytes of a response that was put off; none are no response."""

    def keep_frame(self, data: memoryview, position: int, end: int) -> memoryview:
        """Return `data[position:end]` of the frame that is being handled, as memory that is not read into again.

        It counts until it is given to `discount`.
        """

    def discount(self, size: int) -> None:
        """The memory of a frame that was kept is no longer needed."""
