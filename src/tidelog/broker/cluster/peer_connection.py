"""One connection to another node: frames out, frames in, answers matched with the requests that wait for them.

Kafka answers the requests of a connection in their order, so the oldest one that waits is the one that an answer must be for.

| what arrives | what happens |
|---|---|
| the answer to the oldest request | its future has the message, record bytes as views of the received frame |
| another correlation id, a size out of bounds, bytes that are no such message | ProtocolError for all that wait; closed |
| a TLS record in place of the first answer | SecurityProtocolError, likewise |
| the end of the connection | BrokerUnreachableError, likewise |

The answer to ApiVersions and to SASL has at most `MAX_HANDSHAKE_BYTES`: the peer may be none of Kafka's. Any other answer may be
as large as the protocol can say. The first request may be a Fetch: a peer whose versions are known is not asked for them.

A frame's memory is taken when its size and its correlation id are known. The system provides the memory of a very large one page
by page, as bytes come: a peer that announces much and sends little costs little.
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import socket
from collections import deque
from struct import Struct
from typing import Any

from tidelog.errors import BrokerUnreachableError, ProtocolError, SecurityProtocolError, TidelogError
from tidelog.security.client_config import IN_PLAIN_TEXT, ClientConfig
from tidelog.security.tls_errors import tls_error
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Message
from tidelog.wire.headers import read_response, request_chunks
from tidelog.wire.messages.api_versions import ApiVersionsResponse
from tidelog.wire.messages.sasl_authenticate import SaslAuthenticateResponse
from tidelog.wire.messages.sasl_handshake import SaslHandshakeResponse

MAX_HANDSHAKE_BYTES = 1 << 20
"""The answers to `HANDSHAKES` are small. A server that answers with more does not speak Kafka's protocol."""

HANDSHAKES = frozenset({ApiVersionsResponse, SaslHandshakeResponse, SaslAuthenticateResponse})

MAX_RESPONSE_BYTES = 2**31 - 1
"""What a frame's size can say. Kafka's clients have no other limit: a leader may send a batch of any size first."""

RECEIVED_AT_ONCE = 1 << 20
"""Bytes that are received in one turn of the loop: less than a millisecond's work."""

_SMALL_BYTES = 1 << 16
_CLEARED_BYTES = 16 << 20
"""Memory for a frame up to this size is cleared and reused, which is faster; clearing more would take too long on the loop."""
_SIZE = Struct(">i")
_SHORT = Struct(">h")
_TLS_ALERTS = frozenset(bytes([0x15, 3, minor, 0]) for minor in range(5))
"""How an alert begins: its kind, SSL 3.0 to TLS 1.3, and the high byte of a length of 2. No handshake's answer has that size."""


class PeerConnection(asyncio.BufferedProtocol):
    """One connection. `place` is the peer's host:port, for errors. Belongs to the loop's thread."""

    def __init__(
        self,
        place: str,
        client_id: str,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
        config: ClientConfig = IN_PLAIN_TEXT,
    ) -> None:
        self.place = place
        self.error: TidelogError | None = None
        """Why it is of no more use; None while it is."""
        self._client_id = client_id
        self._max_response_bytes = max_response_bytes
        self._config = config
        self._transport: asyncio.Transport | None = None
        self._correlation_id = 0
        self._answers = 0
        self._first: type[Message] | None = None
        """What the first request is answered with."""
        self._waiting: deque[tuple[int, type[Message], int, asyncio.Future[Any]]] = deque()
        # What is received: many small frames through one buffer; the rest of a larger one straight into its own memory.
        self._small = memoryview(bytearray(_SMALL_BYTES))
        self._filled = 0
        self._large: memoryview | None = None
        self._large_filled = 0

    @property
    def is_usable(self) -> bool:
        """Whether requests can be sent."""
        return self.error is None

    @property
    def in_flight(self) -> int:
        """How many requests wait for their answers."""
        return len(self._waiting)

    def send(self, message: Message, version: int, response: type[Message]) -> asyncio.Future[Any]:
        """Send a request and return the future of its response.

        Raises the error that ended the connection, and InvalidArgumentError for what the version cannot express.
        """
        if self.error is not None:
            raise self.error
        assert self._transport is not None
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        chunks = request_chunks(message, version, self._correlation_id, self._client_id)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._first = self._first or response
        self._waiting.append((self._correlation_id, response, version, future))
        self._transport.writelines(chunks)
        return future

    def close(self, error: TidelogError | None = None) -> None:
        """Close it; all that wait get the error. Idempotent."""
        if self.error is not None:
            return
        self.error = error or BrokerUnreachableError("the connection was closed on this side", path=self.place)
        if self._transport is not None:
            self._transport.abort()
        waiting, self._waiting = self._waiting, deque()
        self._large = None
        for *_, future in waiting:
            if not future.done():
                future.set_exception(self.error)
                # Callers that were cancelled do not ask for it.
                future.exception()

    # --- what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        sock = transport.get_extra_info("socket")
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, error: Exception | None) -> None:
        """End: by the peer, or after `close`."""
        tls = self._config.tls
        # With TLS 1.3 a certificate is refused after the handshake.
        meant = tls_error(error, self.place, has_key=tls.has_key) if tls is not None and isinstance(error, OSError) else None
        reason = "it closed the connection" if error is None else meant or getattr(error, "strerror", None) or error
        self.close(BrokerUnreachableError(f"connection lost: {reason}{self._guess()}", path=self.place))

    def _guess(self) -> str:
        """Return what a port may have wanted that ends a connection before it answered anything, or anything but ApiVersions."""
        tls = self._config.tls
        # A peer that is not asked for its versions may be refused by SASL with its first request, and may not know the version.
        or_sasl = "" if self._first is ApiVersionsResponse else " or SASL, or be older than inter.broker.protocol.version"
        if not self._answers and tls is None:
            return f"; the port may require TLS{or_sasl}"
        if not self._answers and tls is not None and not tls.has_key:
            return f"; the port may require a certificate{or_sasl}"
        return "; the port may require SASL" if self._answers == 1 and self._config.sasl is None and not or_sasl else ""

    def get_buffer(self, sizehint: int) -> memoryview:
        """Say where the next bytes go."""
        if self._large is not None:
            return self._large[self._large_filled : self._large_filled + RECEIVED_AT_ONCE]
        return self._small[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Take what has come."""
        large = self._large
        if large is not None:
            self._large_filled += nbytes
            if self._large_filled == len(large):
                self._large = None
                self._answer(large)
            return
        self._filled += nbytes
        position = 0
        while self._filled - position >= 4 and self.error is None:
            (size,) = _SIZE.unpack_from(self._small, position)
            if not self._is_size(size, position):
                return
            have = self._filled - position - 4
            if have < size:
                if size + 4 > _SMALL_BYTES and have >= 4:
                    if not self._is_expected(_SIZE.unpack_from(self._small, position + 4)[0]):
                        return
                    self._large = memoryview(bytearray(size) if size <= _CLEARED_BYTES else mmap.mmap(-1, size))
                    self._large[:have] = self._small[position + 4 : self._filled]
                    self._large_filled = have
                    position = self._filled
                break
            # A copy: the buffer is read into again while the message, and its record bytes, live on.
            self._answer(memoryview(bytearray(self._small[position + 4 : position + 4 + size])))
            position += 4 + size
        left = self._filled - position
        if position and left:
            self._small[:left] = bytes(self._small[position : self._filled])
        self._filled = left

    # --- answers

    def _is_size(self, size: int, position: int) -> bool:
        expected = self._waiting[0][1] if self._waiting else None
        most = MAX_HANDSHAKE_BYTES if expected in HANDSHAKES else self._max_response_bytes
        is_alert = not self._answers and bytes(self._small[position : position + 4]) in _TLS_ALERTS
        if 4 <= size <= most and not is_alert:
            return True
        if is_alert:
            message = "the port requires TLS (listener.security.protocol.map)"
            self.close(SecurityProtocolError(message, path=self.place, found="SSL or SASL_SSL", expected=self._config.protocol))
        else:
            what = "not a Kafka node's response: its size"
            self.close(ProtocolError(what, path=self.place, found=size, expected=f"4 to {most}"))
        return False

    def _is_expected(self, correlation_id: int) -> bool:
        """Whether an answer is the oldest request's; else this is closed."""
        expected = self._waiting[0][0] if self._waiting else None
        if correlation_id != expected:
            found = "none" if expected is None else expected
            self.close(ProtocolError("response to another request", path=self.place, found=correlation_id, expected=found))
        return correlation_id == expected

    def _answer(self, frame: memoryview) -> None:
        if self.error is not None or not self._is_expected(_SIZE.unpack_from(frame)[0]):
            return
        _, response, version, future = self._waiting[0]
        self._answers += 1
        if future.cancelled():
            self._waiting.popleft()
            return
        if (
            response is ApiVersionsResponse
            and len(frame) > 5
            and _SHORT.unpack_from(frame, 4)[0] == ErrorCode.UNSUPPORTED_VERSION
        ):
            version = 0  # Whatever was asked for (KIP-511).
        try:
            _, message = read_response(response, version, frame)
        except ProtocolError as error:
            error.path = self.place
            self.close(error)
            return
        self._waiting.popleft()
        future.set_result(message)
