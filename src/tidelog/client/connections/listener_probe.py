"""Finds out what a port that closes a connection silently requires: TLS, SASL, or neither.

| a broker's listener | response to a request in plain text | recognized by |
|---|---|---|
| SSL, SASL_SSL | sends an alert (15 03), or closes the connection | the response to a ClientHello: a record (16 03) or an alert |
| SASL_PLAINTEXT | answers ApiVersions, closes the connection on any other request | SaslHandshake: it lists mechanisms |
| PLAINTEXT | answers | SaslHandshake: it answers ILLEGAL_SASL_STATE |

The probe opens its own connection. It runs only after a client's connection was closed before its first real response. A broker
that has just stopped refuses the probe's connection; then the probe reports nothing.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable
from struct import Struct
from typing import Final

from tidelog.errors import TidelogError
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.headers import read_response, request_chunks
from tidelog.wire.messages.api_versions import ApiVersionsRequest
from tidelog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

PROBE_MS: Final = 10_000
"""How long a port has to answer. A broker that pauses for some seconds is still recognized."""

NO_MECHANISM: Final = "TIDELOG-NONE"

_HANDSHAKE: Final = 22
_ALERT: Final = 21
_TLS_MAJOR: Final = 3
_SIZE = Struct(">i")
_ANSWER = Struct(">ii")
_MOST_BYTES: Final = 1 << 16


def is_tls_record(data: bytes | bytearray) -> bool:
    """Whether `data` begins like a TLS alert or a TLS handshake message."""
    return len(data) >= 2 and data[0] in (_ALERT, _HANDSHAKE) and data[1] == _TLS_MAJOR


def wants_tls(address: tuple[str, int], timeout_ms: int = PROBE_MS) -> bool:
    """Whether a port answers a TLS ClientHello as a TLS server does."""
    outgoing = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # Nothing is sent over this connection, and it is closed.
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    try:
        with socket.create_connection(address, timeout=timeout_ms / 1000) as probe:
            probe.sendall(outgoing.read())
            return is_tls_record(_exactly(probe, 2))
    except OSError:
        return False


def speaks_kafka(address: tuple[str, int], timeout_ms: int = PROBE_MS) -> bool:
    """Whether a port answers ApiVersions in plain text."""
    request = b"".join(request_chunks(ApiVersionsRequest(), 0, 1, "tidelog"))
    try:
        with socket.create_connection(address, timeout=timeout_ms / 1000) as probe:
            probe.sendall(request)
            size, correlation_id = _ANSWER.unpack(_exactly(probe, _ANSWER.size))
    except OSError:
        return False
    return bool(0 < size <= _MOST_BYTES and correlation_id == 1)


def sasl_mechanisms(
    address: tuple[str, int], timeout_ms: int = PROBE_MS, wrap: Callable[[socket.socket], socket.socket] | None = None
) -> list[str] | None:
    """Return the mechanisms of a SASL port; None if the port does not use SASL, or its response is invalid. `wrap` adds TLS."""
    request = b"".join(request_chunks(SaslHandshakeRequest(NO_MECHANISM), 0, 1, "tidelog"))
    try:
        with (
            socket.create_connection(address, timeout=timeout_ms / 1000) as plain,
            plain if wrap is None else wrap(plain) as probe,
        ):
            probe.sendall(request)
            (size,) = _SIZE.unpack(_exactly(probe, _SIZE.size))
            if not 0 < size <= _MOST_BYTES:
                return None
            _, answer = read_response(SaslHandshakeResponse, 0, memoryview(_exactly(probe, size)))
    except (OSError, TidelogError):
        return None
    return sorted(answer.mechanisms) if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM else None


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise ConnectionResetError("the port closed the connection")
        data += piece
    return bytes(data)
