"""One connection to another node: sends and receives frames, and matches responses with pending requests.

Kafka answers the requests of a connection in order, so each response must belong to the oldest pending request.

| what arrives | what happens |
|---|---|
| the response to the oldest request | its future gets the message; record bytes are views of the received frame |
| a different correlation id, an invalid size, a malformed message | the connection closes; pending requests get ProtocolError |
| a TLS record instead of the first response | the same, with SecurityProtocolError |
| the end of the connection | the same, with BrokerUnreachableError |

A response to ApiVersions or SASL may have at most `MAX_HANDSHAKE_BYTES`, since the peer may not speak Kafka's protocol at all.
Any other response may be as large as the protocol allows. The first request may be a Fetch: if the peer's versions are known, no
ApiVersions request is sent.

Memory for a frame is allocated once its size and correlation id are known. The operating system backs a very large frame page by
page as bytes arrive, so a peer that announces a large frame but sends little costs little.
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
"""Responses to `HANDSHAKES` are small. A server that sends more does not speak Kafka's protocol."""

HANDSHAKES = frozenset({ApiVersionsResponse, SaslHandshakeResponse, SaslAuthenticateResponse})

MAX_RESPONSE_BYTES = 2**31 - 1
"""The largest frame size in Kafka's protocol. Kafka's clients have no other limit, because a leader may send a first batch of any
size.
"""

RECEIVED_AT_ONCE = 1 << 20
"""Bytes received in one iteration of the loop: less than a millisecond of work."""

_SMALL_BYTES = 1 << 16
_CLEARED_BYTES = 16 << 20
"""A frame buffer up to this size is zeroed and reused, which is faster; zeroing more would block the loop too long."""
_SIZE = Struct(">i")
_SHORT = Struct(">h")
_TLS_ALERTS = frozenset(bytes([0x15, 3, minor, 0]) for minor in range(5))
"""The first bytes of a TLS alert: its type, a version from SSL 3.0 to TLS 1.3, and the high byte of a length of 2. No handshake
response has the size that these bytes would mean.
"""


class PeerConnection(asyncio.BufferedProtocol):
    """One connection to another node. `place` is the node's host:port, for errors. Use only on the event loop's thread."""

    def __init__(self, place: str, client_id: str, config: ClientConfig = IN_PLAIN_TEXT) -> None:
        self.place = place
        self.error: TidelogError | None = None
        """The error that ended the connection; None while it is usable."""
        self._client_id = client_id
        self._config = config
        self._transport: asyncio.Transport | None = None
        self._correlation_id = 0
        self._answers = 0
        self._first: type[Message] | None = None
        """The response class of the first request; None before any request."""
        self._waiting: deque[tuple[int, type[Message], int, asyncio.Future[Any]]] = deque()
        # Small frames share one receive buffer; the rest of a larger frame is received straight into its own memory.
        self._small = memoryview(bytearray(_SMALL_BYTES))
        self._filled = 0
        self._large: memoryview | None = None
        self._large_filled = 0
        self._socket: socket.socket | None = None
        """The socket of a connection in plain text."""

    @property
    def is_usable(self) -> bool:
        """Whether requests can be sent."""
        return self.error is None

    @property
    def in_flight(self) -> int:
        """The number of requests awaiting a response."""
        return len(self._waiting)

    def send(self, message: Message, version: int, response: type[Message]) -> asyncio.Future[Any]:
        """Send a request and return a future for its response.

        Raises the error that ended the connection, and InvalidArgumentError for a field that the request's version does not have.
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
        """Close the connection. All pending requests fail with `error`, or with BrokerUnreachableError if it is None.
        Idempotent.
        """
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
                # Cancelled callers do not retrieve it.
                future.exception()

    # --- what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start to use the connection, which is now established."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        sock = transport.get_extra_info("socket")
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = sock if self._config.tls is None else None

    def connection_lost(self, error: Exception | None) -> None:
        """Handle the end of the connection, by the peer or after `close`."""
        tls = self._config.tls
        # In TLS 1.3 the peer rejects a certificate only after the handshake.
        meant = tls_error(error, self.place, has_key=tls.has_key) if tls is not None and isinstance(error, OSError) else None
        reason = "the peer closed it" if error is None else meant or getattr(error, "strerror", None) or error
        self.close(BrokerUnreachableError(f"the connection was lost: {reason}{self._guess()}", path=self.place))

    def _guess(self) -> str:
        """Return a hint about what the port may require, "" if there is none. It depends on how many responses arrived
        before the peer closed the connection.
        """
        tls = self._config.tls
        # Without ApiVersions, the peer may close on the first request because it requires SASL or does not know the version.
        or_sasl = "" if self._first is ApiVersionsResponse else " or SASL, or be older than inter.broker.protocol.version"
        if not self._answers and tls is None:
            return f"; the port may require TLS{or_sasl}"
        if not self._answers and tls is not None and not tls.has_key:
            return f"; the port may require a certificate{or_sasl}"
        return "; the port may require SASL" if self._answers == 1 and self._config.sasl is None and not or_sasl else ""

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes."""
        if self._large is not None:
            return self._large[self._large_filled : self._large_filled + RECEIVED_AT_ONCE]
        return self._small[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Process the received bytes."""
        large = self._large
        if large is not None:
            self._large_filled += nbytes
            self._wake_at(len(large) - self._large_filled)
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
                    self._wake_at(size - have)
                    position = self._filled
                break
            # A copy, because the buffer is reused while the message and its record bytes stay alive.
            self._answer(memoryview(bytearray(self._small[position + 4 : position + 4 + size])))
            position += 4 + size
        left = self._filled - position
        if position and left:
            self._small[:left] = bytes(self._small[position : self._filled])
        self._filled = left

    def _wake_at(self, left_bytes: int) -> None:
        """Have the system wake the loop once per megabyte of a large frame, because each wakeup costs milliseconds on a busy
        machine. The peer can send that much before any of it is read.
        """
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, min(max(left_bytes, 1), RECEIVED_AT_ONCE))

    # --- answers

    def _is_size(self, size: int, position: int) -> bool:
        expected = self._waiting[0][1] if self._waiting else None
        most = MAX_HANDSHAKE_BYTES if expected in HANDSHAKES else MAX_RESPONSE_BYTES
        is_alert = not self._answers and bytes(self._small[position : position + 4]) in _TLS_ALERTS
        if 4 <= size <= most and not is_alert:
            return True
        if is_alert:
            message = "the port requires TLS (listener.security.protocol.map)"
            self.close(SecurityProtocolError(message, path=self.place, found="SSL or SASL_SSL", expected=self._config.protocol))
        else:
            what = "the response does not come from a Kafka node: its size is out of range"
            self.close(ProtocolError(what, path=self.place, found=size, expected=f"4 to {most}"))
        return False

    def _is_expected(self, correlation_id: int) -> bool:
        """Return whether a response belongs to the oldest request; close the connection otherwise."""
        expected = self._waiting[0][0] if self._waiting else None
        if correlation_id != expected:
            found = "none" if expected is None else expected
            self.close(
                ProtocolError(
                    "the response belongs to a different request", path=self.place, found=correlation_id, expected=found
                )
            )
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
            version = 0  # In v0 whatever version was requested (KIP-511).
        try:
            _, message = read_response(response, version, frame)
        except ProtocolError as error:
            error.path = self.place
            self.close(error)
            return
        self._waiting.popleft()
        future.set_result(message)
