"""Sockets that are bound before the broker serves, since a cluster member registers its ports long before it can serve.

As in Kafka, the sockets listen only once the broker serves. Until then, clients are refused and try another broker. If
connections were accepted but not answered, clients would wait for their request timeout, and librdkafka would then assume
release 0.10.
"""

from __future__ import annotations

import socket

from tidelog.broker.requests.listeners import Listener
from tidelog.broker.settings.broker_config import BrokerConfig
from tidelog.errors import InvalidArgumentError


class BoundSockets:
    """Bound sockets with their listeners, which have the actual ports. `close` closes the sockets that were not taken."""

    def __init__(self, sockets: list[tuple[socket.socket, Listener]], backlog: int) -> None:
        self._sockets = sockets
        self._backlog = backlog
        self.listeners = tuple(listener for _, listener in sockets)

    def take(self) -> list[tuple[socket.socket, Listener]]:
        """Listen, and return the sockets. The caller must then close them.

        Raises InvalidArgumentError if another process has begun to listen on one of the ports since `bind`.
        """
        for sock, listener in self._sockets:
            try:
                sock.listen(self._backlog)
            except OSError as error:
                self.close()
                raise _cannot_listen(listener, error) from error
        sockets, self._sockets = self._sockets, []
        return sockets

    def close(self) -> None:
        """Close the sockets that were not taken. Idempotent."""
        sockets, self._sockets = self._sockets, []
        for sock, _ in sockets:
            sock.close()


def bind(config: BrokerConfig) -> BoundSockets:
    """Bind all of a configuration's listeners. Raises InvalidArgumentError, and leaves nothing open, if that fails."""
    sockets: list[tuple[socket.socket, Listener]] = []
    try:
        for listener in config.listeners:
            sockets.append(_bound(listener, config))  # noqa: PERF401  # those before one that fails are closed
    except BaseException:
        BoundSockets(sockets, 0).close()
        raise
    return BoundSockets(sockets, config.socket_listen_backlog_size)


def _bound(listener: Listener, config: BrokerConfig) -> tuple[socket.socket, Listener]:
    try:
        found = socket.getaddrinfo(listener.host or None, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        if not listener.host and socket.has_dualstack_ipv6():
            found.sort(key=lambda one: one[0] != socket.AF_INET6)  # One socket for IPv4 and IPv6.
        family, kind, protocol, _, address = found[0]
        sock = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _cannot_listen(listener, error) from error
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and not listener.host:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        if config.socket_receive_buffer_bytes > 0:
            # Set before listening: accepted connections inherit it, and their TCP windows depend on it.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, config.socket_receive_buffer_bytes)
        sock.bind(address)
    except OSError as error:
        sock.close()
        raise _cannot_listen(listener, error) from error
    return sock, listener.bound(sock.getsockname()[1])


def _cannot_listen(listener: Listener, error: OSError) -> InvalidArgumentError:
    return InvalidArgumentError(f"cannot listen on {listener.host or '*'}:{listener.port}: {error.strerror or error}")
