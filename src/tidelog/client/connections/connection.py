"""One connection to a broker, a blocking socket. Responses arrive in the order of the requests.

The first request is ApiVersions v0, which every broker since 0.10 answers. Later requests use only versions that the broker
listed. Nothing here retries: `cluster` does.

| what happens | raises |
|---|---|
| no connection, connection lost, no answer in time | BrokerUnreachableError |
| the port requires TLS or SASL and the configuration does not use it, or the reverse | SecurityProtocolError |
| either side refuses a certificate, a password or a token | AuthenticationError |
| an invalid response | ProtocolError |
| client and broker have no common version of a request, or none that is new enough | UnsupportedVersionError |

If a session expires (KIP-368), it is renewed before its end, when a request is sent; pending responses are read first. After any
of these errors except UnsupportedVersionError, the connection cannot be used again: `is_usable` is False.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import TypeVar

from tidelog.client.connections.addresses import BrokerAddress
from tidelog.client.connections.authentication import authenticate
from tidelog.client.connections.listener_probe import is_tls_record, sasl_mechanisms, wants_tls
from tidelog.client.connections.tls import is_quiet, open_tls, refusal, send_joined
from tidelog.errors import BrokerUnreachableError, ProtocolError, SecurityProtocolError, TidelogError, UnsupportedVersionError
from tidelog.security.access import Access
from tidelog.security.tls_errors import alert_error
from tidelog.wire.codec import Message
from tidelog.wire.headers import read_response, request_chunks
from tidelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

M = TypeVar("M", bound=Message)

Allocate = Callable[[int], memoryview]
"""Returns a writable buffer of a size in bytes, for a response."""

MAX_RESPONSE_BYTES = 1 << 30
"""A larger response is treated as invalid."""

MAX_FIRST_RESPONSE_BYTES = 1 << 20
"""The first response is small: a server that sends more does not speak Kafka's protocol."""

CONNECT_MS = 10_000
"""How long connecting may take. It is short, because another broker may answer."""

RENEWAL_SHARE = 0.85
"""A session is renewed after this share of its length, as in Kafka's clients."""

_JOINED_BYTES = 1 << 16
_MOST_CHUNKS = 512
"""The largest number of buffers in one system call; operating systems accept 1,024."""
_SIZE = Struct(">i")


class Connection:
    """One connection. `timeout_ms` limits the wait for a response, unless the request says otherwise."""

    def __init__(self, address: BrokerAddress, *, timeout_ms: int, client_id: str, access: Access) -> None:
        self.address = address
        self._access = access
        self.is_usable = True
        self._place = str(address)
        self._timeout_ms = timeout_ms
        self._client_id = client_id
        self._correlation_id = 0
        self._waiting: deque[tuple[int, type[Message], int]] = deque()
        self._size = bytearray(4)
        self._answers = 0
        self._early: deque[memoryview] = deque()
        self._offered: dict[int, tuple[int, int]] = {}
        self._renewal_s = float("inf")
        try:
            self._socket = socket.create_connection(address, timeout=min(timeout_ms, CONNECT_MS) / 1000)
        except OSError as error:
            raise BrokerUnreachableError(f"cannot connect to a broker: {_reason(error)}", path=self._place) from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if access.tls is not None:
                self._socket = open_tls(self._socket, address, access)
            self._offered = self._handshake()
            self._authenticate()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        self.is_usable = False
        with contextlib.suppress(OSError):
            self._socket.close()

    def __del__(self) -> None:
        # A reader that is garbage-collected before its end drops its connections, too.
        if hasattr(self, "_socket"):
            self.close()

    @property
    def is_idle(self) -> bool:
        """Whether the connection may be reused: it is usable, all responses have been received, and the broker has not
        closed it.
        """
        if not self.is_usable or self._waiting:
            return False
        if isinstance(self._socket, ssl.SSLSocket):
            return is_quiet(self._socket)
        try:
            # A broker sends nothing without a request: a readable socket means that the connection was closed, or garbage.
            self._socket.settimeout(0)
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def offers(self, request: type[Message], version: int = 0) -> bool:
        """Whether the broker supports `version` of the request, or a later one."""
        return self._offered.get(request.API_KEY, (-1, -1))[1] >= version

    def version(self, request: type[Message], *, newest: int, oldest: int = 0) -> int:
        """Return the newest version from `oldest` to `newest` that the broker supports. Raises UnsupportedVersionError."""
        low, high = self._offered.get(request.API_KEY, (0, -1))
        version = min(newest, high)
        if version < max(oldest, low):
            offered = "none" if high < 0 else f"v{low} to v{high}"
            raise UnsupportedVersionError(
                f"the broker is too {'old' if high < oldest else 'new'} for this {request.API_NAME} request",
                path=self._place,
                found=offered,
                expected=f"v{oldest} to v{newest}",
            )
        return version

    def ask(self, message: Message, version: int, response: type[M], *, wait_ms: int | None = None) -> M:
        """Send a request and return its response. `wait_ms` is added to the usual timeout."""
        self.send(message, version, response)
        return self.receive(response, wait_ms=wait_ms)

    def send(self, message: Message, version: int, response: type[Message] | None) -> None:
        """Send a request; `receive` returns its response later. Pass None for `response` if there is none (Produce with
        acks=0).
        """
        if time.monotonic() >= self._renewal_s:
            self._renew()
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        chunks = request_chunks(message, version, self._correlation_id, self._client_id)
        if response is not None:
            self._waiting.append((self._correlation_id, response, version))
        try:
            self._socket.settimeout(self._timeout_ms / 1000)
            if sum(map(len, chunks)) <= _JOINED_BYTES:
                self._socket.sendall(b"".join(chunks))
            elif isinstance(self._socket, ssl.SSLSocket):
                send_joined(self._socket, [memoryview(chunk) for chunk in chunks])
            else:
                self._send_uncopied([memoryview(chunk) for chunk in chunks])
        except OSError as error:
            raise self._lost(error) from None

    def _send_uncopied(self, chunks: list[memoryview]) -> None:
        """Send the chunks with few system calls: a request may have dozens of batches, with other bytes between them."""
        first = 0
        while first < len(chunks):
            sent = self._socket.sendmsg(chunks[first : first + _MOST_CHUNKS])
            while first < len(chunks) and sent >= len(chunks[first]):
                sent -= len(chunks[first])
                first += 1
            if sent:
                chunks[first] = chunks[first][sent:]

    def receive(self, response: type[M], *, wait_ms: int | None = None, allocate: Allocate | None = None) -> M:
        """Return the response to the oldest pending request; its record bytes are in a buffer from `allocate`."""
        correlation_id, kind, version = self._waiting[0]
        assert kind is response
        deadline = time.monotonic() + (self._timeout_ms + (wait_ms or 0)) / 1000
        frame = self._early.popleft() if self._early else self._read_frame(deadline, allocate)
        try:
            found_id, message = read_response(response, version, frame)
        except ProtocolError as error:
            self.close()
            error.path = self._place
            raise
        if found_id != correlation_id:
            self.close()
            raise ProtocolError(
                "the response belongs to a different request: its correlation id is wrong",
                path=self._place,
                found=found_id,
                expected=correlation_id,
            )
        self._waiting.popleft()
        self._answers += 1
        return message

    def _handshake(self) -> dict[int, tuple[int, int]]:
        answer = self.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
        if answer.error_code:
            raise ProtocolError("the broker does not report its versions", path=self._place, found=f"error {answer.error_code}")
        return {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    # --- authentication

    def ask_bare(self, message: bytes) -> bytes:
        """Send the message with its size in front, and return the response without its size. SASL uses this before Kafka 1.0."""
        try:
            self._socket.settimeout(self._timeout_ms / 1000)
            self._socket.sendall(_SIZE.pack(len(message)) + message)
        except OSError as error:
            raise self._lost(error) from None
        deadline = time.monotonic() + self._timeout_ms / 1000
        self._fill(memoryview(self._size), deadline)
        (size,) = _SIZE.unpack(self._size)
        if not 0 <= size <= MAX_FIRST_RESPONSE_BYTES:
            self.close()
            raise ProtocolError("the size of the broker's SASL challenge is out of range", path=self._place, found=size)
        challenge = bytearray(size)
        self._fill(memoryview(challenge), deadline)
        return bytes(challenge)

    def _authenticate(self) -> None:
        client = self._access.sasl_client()
        if client is None:
            return
        self._renewal_s = float("inf")
        lifetime_ms = authenticate(self, client)
        if lifetime_ms > 0:
            self._renewal_s = time.monotonic() + RENEWAL_SHARE * lifetime_ms / 1000

    def _renew(self) -> None:
        """Authenticate again. All pending responses are read first and kept until callers receive them."""
        waiting, self._waiting = self._waiting, deque()
        deadline = time.monotonic() + self._timeout_ms / 1000
        early = self._early
        while len(early) < len(waiting):
            early.append(self._read_frame(deadline, None))
        self._early = deque()
        self._authenticate()
        self._waiting, self._early = waiting, early

    def _read_frame(self, deadline: float, allocate: Allocate | None) -> memoryview:
        self._fill(memoryview(self._size), deadline)
        (size,) = _SIZE.unpack(self._size)
        # Correlation ids begin with 1, because the peer is not yet known.
        most = MAX_FIRST_RESPONSE_BYTES if self._correlation_id == 1 else MAX_RESPONSE_BYTES
        if not 4 <= size <= most:
            self.close()
            if not self._answers and is_tls_record(self._size):
                raise _wants_tls(self._place, self._access.config.protocol)
            raise ProtocolError(
                "the response is not a Kafka broker's: its size is out of range",
                path=self._place,
                found=size,
                expected=f"4 to {most}",
            )
        frame = memoryview(bytearray(size)) if allocate is None else allocate(size)
        self._fill(frame, deadline)
        return frame

    def _fill(self, memory: memoryview, deadline: float) -> None:
        filled = 0
        try:
            while filled < len(memory):
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                self._socket.settimeout(left)
                count = self._socket.recv_into(memory[filled:])
                if count == 0:
                    raise ConnectionResetError("the broker closed the connection")
                filled += count
        except OSError as error:
            raise self._lost(error) from None

    def _lost(self, error: OSError) -> TidelogError:
        self.close()
        return self._meant_by(error) or BrokerUnreachableError(
            f"the connection to a broker was lost: {_reason(error)}", path=self._place
        )

    def _meant_by(self, error: OSError) -> TidelogError | None:
        """Return the error that explains a closed connection: a TLS alert, or a port with a different security protocol."""
        access = self._access
        if access.tls is not None and (alert := alert_error(error, self._place, has_key=access.tls.settings.has_key)):
            return alert
        if isinstance(error, TimeoutError):
            return None
        if not self._answers:
            # A TLS port closes the connection at once.
            if access.tls is not None:
                return refusal(self.address, access)
            return _wants_tls(self._place, access.config.protocol) if wants_tls(self.address) else None
        if self._answers == 1 and access.config.sasl is None:
            # A SASL port closes the connection after ApiVersions.
            wrap = None if access.tls is None else (lambda plain: open_tls(plain, self.address, access))
            mechanisms = sasl_mechanisms(self.address, wrap=wrap)
            if mechanisms is not None:
                protocol = access.config.protocol
                return SecurityProtocolError(
                    f"the port requires SASL authentication (security.protocol=SASL_{protocol})",
                    path=self._place,
                    found=f"SASL: {', '.join(mechanisms)}",
                    expected=protocol,
                )
        return None


def _wants_tls(place: str, protocol: str) -> SecurityProtocolError:
    message = "the port requires TLS (security.protocol=SSL or SASL_SSL)"
    return SecurityProtocolError(message, path=place, found="SSL or SASL_SSL", expected=protocol)


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return error.strerror or str(error) or type(error).__name__
