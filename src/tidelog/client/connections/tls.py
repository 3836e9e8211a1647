"""TLS on a client's socket, and the meaning of its failures.

| what happens | raises |
|---|---|
| the broker's certificate is for a different host, not trusted, or expired | AuthenticationError |
| the broker requires a client certificate, or refuses the client's certificate | AuthenticationError |
| the port does not speak TLS; no common version or cipher | SecurityProtocolError |
| there is no answer, or the connection is lost | BrokerUnreachableError |

With TLS 1.3 a client certificate is refused after the handshake: the first read then finds the alert, unless a connection reset
has discarded the alert. `refusal` therefore connects again and sends nothing, so that it can read the alert.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Sequence
from typing import Final

from tidelog.client.connections.addresses import BrokerAddress
from tidelog.client.connections.listener_probe import speaks_kafka
from tidelog.errors import BrokerUnreachableError, SecurityProtocolError, TidelogError
from tidelog.security.access import Access
from tidelog.security.tls_errors import alert_error, no_tls, untrusted

RECORD_BYTES: Final = 16_384
"""The payload of one TLS record."""

REFUSAL_MS: Final = 2_000
"""How long a port has to refuse a client's certificate. A port that accepts it says nothing: each lost connection to such a port
costs this time.
"""


def open_tls(sock: socket.socket, address: BrokerAddress, access: Access) -> ssl.SSLSocket:
    """Return the socket wrapped in TLS. Its timeout is unchanged and also limits the handshake. Raises the errors in the
    table above.
    """
    assert access.tls is not None
    context = access.tls.get()
    try:
        return context.wrap_socket(sock, server_hostname=address.host.partition("%")[0])
    except ssl.SSLCertVerificationError as error:
        raise untrusted(error, str(address)) from None
    except OSError as error:
        known = alert_error(error, str(address), has_key=access.tls.settings.has_key)
        if known is not None:
            raise known from None
        if not isinstance(error, TimeoutError) and speaks_kafka(address):
            raise no_tls(str(address)) from None
        raise BrokerUnreachableError(f"TLS with a broker failed: {_reason(error)}", path=str(address)) from None
    except ValueError as error:  # Not a valid host name.
        raise SecurityProtocolError(f"the host name cannot be used for TLS: {error}", path=str(address)) from None


def refusal(address: BrokerAddress, access: Access) -> TidelogError | None:
    """Return the reason why a port closes connections after the TLS handshake; None if it gives no reason or does not close
    them.
    """
    assert access.tls is not None
    deadline = time.monotonic() + REFUSAL_MS / 1000
    try:
        with (
            socket.create_connection(address, timeout=REFUSAL_MS / 1000) as plain,
            open_tls(plain, address, access) as wrapped,
        ):
            wrapped.settimeout(max(deadline - time.monotonic(), 0.1))
            wrapped.recv(1)
    except (TidelogError, TimeoutError):
        return None
    except OSError as error:
        return alert_error(error, str(address), has_key=access.tls.settings.has_key)
    return None


def is_quiet(sock: ssl.SSLSocket) -> bool:
    """Whether the peer is connected and no application data has arrived. TLS tickets may arrive at any time and do not count."""
    sock.settimeout(0)
    with contextlib.suppress(OSError):
        try:
            sock.recv(1)
        except ssl.SSLWantReadError:
            return True
    return False


def send_joined(sock: ssl.SSLSocket, chunks: Sequence[memoryview]) -> None:
    """Send the chunks; small chunks share a TLS record."""
    waiting = bytearray()
    for chunk in chunks:
        if len(waiting) + len(chunk) <= RECORD_BYTES:
            waiting += chunk
            continue
        if waiting:
            sock.sendall(waiting)
            waiting = bytearray()
        if len(chunk) < RECORD_BYTES:
            waiting += chunk
        else:
            sock.sendall(chunk)
    if waiting:
        sock.sendall(waiting)


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return error.strerror or str(error) or type(error).__name__
