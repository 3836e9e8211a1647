"""A broker's sockets: listen, accept, enforce the limits on connections, shut down. `connection` handles one connection.

| limit | what happens |
|---|---|
| `max.connections`, for the broker or a listener | further connections wait in the kernel's accept queue, as in Kafka |
| `max.connection.creation.rate`, for the broker or a listener | the listener stops accepting for a while |
| the quota `connection_creation_rate` of an IP address | the connection is closed after a delay |
| half of the process's file descriptors | the other half is reserved for the logs: see below |
| `max.connections.per.ip`, `….overrides` | the connection is closed at once |
| `connections.max.idle.ms` | a connection idle for that time is closed, unless it waits for the broker's response |
| the memory of unread responses (`unsent_bytes`) | fetches are cut short; a connection that reads nothing for 10 s is closed |
| the memory of large requests (`queued.max.request.bytes`, 512 MiB) | a connection that sends nothing for 10 s is closed |
| `socket.request.max.bytes` | a connection that announces a larger frame is closed |

If connections use up their half, or the system runs out of file descriptors, a new connection replaces the one that has been
idle longest. The replaced connection must have been idle for `IDLE_S`, or for `UNUSED_S` if it never sent a request. If there is
no such connection, the new one is closed. Silent clients can thus neither use up the logs' file descriptors nor keep others out.

Logging of refusals is rate-limited (`RateLimitedLog`): a client that sends garbage must not fill the operator's disk.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
from collections.abc import Iterable
from functools import partial
from itertools import islice
from time import monotonic

from tidelog.broker.dispatch.dispatcher import APIS, Dispatcher
from tidelog.broker.handling.api import Api
from tidelog.broker.loop.event_loop import AT_THE_END_S, LoopThreads
from tidelog.broker.loop.rate_limited_log import RateLimitedLog
from tidelog.broker.net.answer_rounds import answers_of
from tidelog.broker.net.bulk_sender import BulkSender
from tidelog.broker.net.read_buffers import ReadBuffers
from tidelog.broker.net.tls_socket import TlsSocket
from tidelog.broker.net.turns import Turns
from tidelog.broker.net.unsent_bytes import LOOK_S, STALLED_S, URGENT_S
from tidelog.broker.node import Node
from tidelog.broker.requests.listeners import Listener
from tidelog.broker.server.bound_sockets import BoundSockets, bind
from tidelog.broker.server.connection import Connection
from tidelog.broker.server.connection_limits import ConnectionLimits
from tidelog.broker.server.secured.tls_connection import TlsConnection
from tidelog.broker.settings.listener_security import ListenerSecurity
from tidelog.metadata.records import UserScramCredentialRecord
from tidelog.security.client_config import PLAINTEXT
from tidelog.security.scram import SCRAM_IDS, ScramCredential
from tidelog.security.scram_disguise import KnownUser
from tidelog.storage.segment.descriptors import SPARE

logger = logging.getLogger("tidelog.broker")

ACCEPTS_A_TURN = 64
"""The most connections accepted in one turn; open connections are served before the next turn."""

SWEEP_S = 10.0
"""Interval of the checks for idle connections and unused memory, in seconds; shorter if `connections.max.idle.ms` is shorter."""

OUT_OF_FILES_WAIT_S = 0.5

HANDSHAKE_THREADS = 2
"""Threads for TLS handshakes: a public-key operation takes a millisecond, and the loop serves others meanwhile."""

MAX_THROTTLED = 1000
"""The most connections that wait for a delayed close; any further ones are closed at once."""

MAX_KNOWN_USERS = 64
"""The most users whose salts and iteration counts serve as models for replies about unknown users."""

IDLE_S = 5.0
UNUSED_S = 0.5
"""When file descriptors run out, a connection that never sent a request can be replaced after this many seconds."""


def _scram_credential(node: Node, mechanism: str, name: str) -> ScramCredential | None:
    """Return a user's SCRAM credentials from the metadata, where Kafka's tools put them."""
    found = node.manager.image.scram.get((name, SCRAM_IDS[mechanism]))
    return None if found is None else _credential(found)


_MECHANISMS = {number: name for name, number in SCRAM_IDS.items()}


def _known_users(node: Node) -> list[KnownUser]:
    """Return the SCRAM users that were created first. Replies about unknown users are made to look like theirs."""
    return [
        KnownUser(one.name, _MECHANISMS[one.mechanism], _credential(one))
        for one in islice(node.manager.image.scram.values(), MAX_KNOWN_USERS)
        if one.mechanism in _MECHANISMS
    ]


def _credential(record: UserScramCredentialRecord) -> ScramCredential:
    return ScramCredential(record.salt, record.stored_key, record.server_key, record.iterations)


class BrokerServer:
    """Serves `node` on its configuration's listeners. Everything runs on the thread of the event loop that calls `start`."""

    def __init__(self, node: Node, apis: Iterable[Api] = APIS) -> None:
        config = node.config
        self.node = node
        self.loop = asyncio.get_running_loop()
        self.max_request_bytes = config.socket_request_max_bytes
        self.buffers = ReadBuffers(config.queued_max_request_bytes)
        self.turns = Turns(self.loop.call_soon)
        self.answers = answers_of(self.loop)
        self.bulk = BulkSender(self.loop)
        node.slices.is_shared = lambda: self.turns.are_shared
        self.limited_log = RateLimitedLog(logger)
        self.dispatcher = Dispatcher(node, self.limited_log, apis)
        self.handshakes = LoopThreads(self.loop, HANDSHAKE_THREADS, "tidelog-handshake")
        self.shaking: set[TlsSocket] = set()
        self._secured = {
            one.name: ListenerSecurity(one, config.given, partial(_scram_credential, node), partial(_known_users, node))
            for one in config.listeners
            if one.protocol != PLAINTEXT
        }
        self.connections: dict[int, Connection] = {}
        self._counters = node.metrics.counters
        self._hosts: dict[str, int] = {}
        open_files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._max_by_files = open_files // 2
        self._last_fd = open_files - SPARE
        self._limits = ConnectionLimits(node)
        self._sockets: list[tuple[socket.socket, Listener]] = []
        self._accepting: set[socket.socket] = set()
        self._waiting: dict[socket.socket, socket.socket] = {}
        """For each listening socket that pauses: the accepted connection that exceeded its creation rate. This connection waits,
        and later ones stay in the accept queue.
        """
        self._throttled: set[socket.socket] = set()
        """Connections from addresses that exceed their creation rate. They are closed after a delay."""
        idle_ms = config.connections_max_idle_ms
        self._sweep_s = SWEEP_S if idle_ms < 0 else min(SWEEP_S, max(idle_ms / 4000, 0.01))
        self._sweep: asyncio.TimerHandle | None = None
        self._empty: asyncio.Event | None = None
        self._looked_at = 0.0

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """The listeners, with their actual ports."""
        return self.node.listeners

    async def start(self, bound: BoundSockets | None = None) -> None:
        """Listen, on the given `bound` sockets or on new ones. `stop` closes them.

        Raises InvalidArgumentError, and leaves nothing open, if an address cannot be bound.
        """
        self._sockets = (bound or bind(self.node.config)).take()
        self.node.listeners = tuple(listener for _, listener in self._sockets)
        self._accept_more()
        self._sweep = self.loop.call_later(self._sweep_s, self._look_around)

    async def stop(self, grace_s: float = 5.0) -> None:
        """Stop listening, let pending requests finish for at most `grace_s` seconds, then close everything."""
        self._accept_no_more()
        self._close_sockets()
        if self._sweep is not None:
            self._sweep.cancel()
        self._empty = asyncio.Event()
        self.node.delayed_fetches.end()  # Delayed fetches return the records that have arrived so far.
        for connection in tuple(self.connections.values()):
            connection.end()
        if self.connections and grace_s > 0:
            try:
                await asyncio.wait_for(self._empty.wait(), grace_s)
            except TimeoutError:
                logger.info("%d connections did not close within %.1f s", len(self.connections), grace_s)
        for connection in tuple(self.connections.values()):
            connection.close()
        self.bulk.close(AT_THE_END_S)
        self.handshakes.close()
        for tls in self.shaking:
            tls.stepped()  # Without this the socket, already closed, would stay open: that thread never returns.

    def close_copies(self) -> None:
        """Close this process's copies of the sockets after a fork. The peers notice nothing."""
        self._close_sockets()
        for connection in self.connections.values():
            connection.close_copy()

    # --- for connections

    def forget(self, connection_id: int, peer_host: str) -> None:
        """Remove a closed connection from the counts, and accept another one if there is room again."""
        self._limits.closed(self.connections.pop(connection_id).listener.name)
        self._counters.connections_open -= 1
        left = self._hosts[peer_host] - 1
        if left:
            self._hosts[peer_host] = left
        else:
            del self._hosts[peer_host]
        if self._sockets and len(self._accepting) + len(self._waiting) < len(self._sockets):
            self._accept_more()
        if self._empty is not None and not self.connections:
            self._empty.set()

    # --- listening

    def _close_sockets(self) -> None:
        sockets, self._sockets = self._sockets, []
        waiting, self._waiting = self._waiting, {}
        throttled, self._throttled = self._throttled, set()
        for sock in (*(sock for sock, _ in sockets), *waiting.values(), *throttled):
            sock.close()

    def _accept_more(self) -> None:
        for sock, listener in self._sockets:
            if sock not in self._accepting and sock not in self._waiting:
                self._accepting.add(sock)
                self.loop.add_reader(sock.fileno(), self._accept, sock, listener)

    def _accept_no_more(self, *only: socket.socket) -> None:
        for sock in only or tuple(self._accepting):
            self._accepting.discard(sock)
            self.loop.remove_reader(sock.fileno())

    def _accept(self, listening: socket.socket, listener: Listener) -> None:
        for _ in range(ACCEPTS_A_TURN):
            if not self._limits.has_room(listener):
                self.limited_log.warning(
                    "listener %s: a connection limit is reached, with %d connections open: new connections wait",
                    listener.name,
                    len(self.connections),
                )
                self._accept_no_more(listening)
                return
            try:
                sock, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    raise
                if self._make_room():
                    continue
                self.limited_log.warning("cannot accept connections for now: %s", error)
                self._accept_no_more()
                self.loop.call_later(OUT_OF_FILES_WAIT_S, self._accept_more)
                return
            if (len(self.connections) >= self._max_by_files or sock.fileno() >= self._last_fd) and not self._make_room():
                self.limited_log.warning(
                    "%d connections: a new one was closed, because the remaining file descriptors are reserved for logs",
                    len(self.connections),
                )
                self._counters.connections_refused += 1
                sock.close()
                continue
            host = address[0].removeprefix("::ffff:")
            wait_ms = self._limits.wait_ms(listener)
            if wait_ms:
                self._accept_no_more(listening)
                self._waiting[listening] = sock
                self.loop.call_later(wait_ms / 1000, self._waited, listening, host, listener)
                return
            self._connected(sock, host, listener)

    def _waited(self, listening: socket.socket, host: str, listener: Listener) -> None:
        sock = self._waiting.pop(listening, None)
        if sock is not None:
            self._connected(sock, host, listener)
            self._accept_more()

    def _make_room(self) -> bool:
        """Close the connection that has been idle longest. Return False if none has been idle long enough."""
        oldest: Connection | None = None
        oldest_at = monotonic()
        for connection in self.connections.values():
            # One that never sent a request counts as idle for longer, so it is closed first.
            at = connection.active_at + (UNUSED_S if connection.served is None else IDLE_S)
            if at < oldest_at and not connection.is_waiting:
                oldest, oldest_at = connection, at
        if oldest is None:
            return False
        self.limited_log.warning(
            "%d connections: file descriptors are running out, so the connection that was idle longest is closed: %s",
            len(self.connections),
            oldest,
        )
        self._counters.connections_idle_closed += 1
        oldest.close()
        return True

    def _throttle(self, sock: socket.socket, wait_ms: int) -> None:
        """Close a connection after a delay, because its address creates connections too fast. The delay keeps the client from
        retrying at once.
        """
        self._counters.connections_refused += 1
        if len(self._throttled) >= MAX_THROTTLED:
            sock.close()
            return

        def close() -> None:
            self._throttled.discard(sock)
            sock.close()

        self._throttled.add(sock)
        self.loop.call_later(wait_ms / 1000, close)

    def _connected(self, sock: socket.socket, host: str, listener: Listener) -> None:
        config = self.node.config
        wait_ms = self._limits.wait_of_address_ms(host)
        if wait_ms:
            self._throttle(sock, wait_ms)
            return
        count = self._hosts.get(host, 0)
        limit = dict(config.max_connections_per_ip_overrides).get(host, config.max_connections_per_ip)
        if count >= limit:
            self.limited_log.warning("%s already has %d connections, which is its limit: a new one was closed", host, count)
            self._counters.connections_refused += 1
            sock.close()
            return
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if config.socket_send_buffer_bytes > 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, config.socket_send_buffer_bytes)
        except OSError:  # The peer has left already.
            sock.close()
            return
        counters = self._counters
        counters.connections_accepted += 1
        counters.connections_open += 1
        self._hosts[host] = count + 1
        self._limits.opened(listener.name)
        if self._limits.is_exceeded:
            self._make_room()
        number = counters.connections_accepted
        security = self._secured.get(listener.name)
        if security is None:
            self.connections[number] = Connection(self, sock, number, host, listener)
            return
        if security.tls is None:
            connection = Connection(self, sock, number, host, listener)
        else:
            connection = TlsConnection(self, TlsSocket(sock, security.tls), number, host, listener, security.rules)
        self.connections[number] = connection
        if security.mechanisms:
            connection.guard(security)

    def budget_used_up(self) -> None:
        """Schedule `close_stalled`, because unsent responses have used up their budget."""
        now = monotonic()
        if now - self._looked_at >= LOOK_S:
            self._looked_at = now
            unsent = self.node.unsent
            patience_s = STALLED_S if unsent.used_bytes < 2 * unsent.max_bytes else URGENT_S
            self.loop.call_soon(self.close_stalled, now - patience_s)

    def close_stalled(self, since: float) -> None:
        """Close connections that have taken no bytes since `since`, the largest first, until unsent responses take at most half
        their budget.
        """
        unsent = self.node.unsent
        if unsent.used_bytes < unsent.max_bytes // 2:
            return
        stalled = [one for one in self.connections.values() if one.held_bytes and one.active_at <= since]
        for connection in sorted(stalled, key=lambda one: -one.held_bytes):
            self.limited_log.warning("%s was closed: it did not read its responses (%d bytes)", connection, connection.held_bytes)
            self._counters.connections_stalled_closed += 1
            connection.close()
            if unsent.used_bytes < unsent.max_bytes // 2:
                break

    def close_slow_senders(self, since: float) -> None:
        """If connections wait for memory for large requests, close those that have sent part of a large request and nothing since
        `since`.
        """
        if self.buffers.is_waited_for:
            for connection in tuple(self.connections.values()):
                if connection.is_within_large_request and connection.active_at <= since:
                    self.limited_log.warning("%s was closed: it stopped sending a large request while others waited", connection)
                    self._counters.connections_stalled_closed += 1
                    connection.close()

    def _look_around(self) -> None:
        """Close idle connections, and free unused memory."""
        self.buffers.trim()
        self.close_stalled(monotonic() - STALLED_S)
        self.close_slow_senders(monotonic() - STALLED_S)
        idle_ms = self.node.config.connections_max_idle_ms
        if idle_ms >= 0:
            oldest = monotonic() - idle_ms / 1000
            for connection in tuple(self.connections.values()):
                if connection.active_at < oldest and not connection.is_waiting:
                    logger.debug("%s was closed: it was idle for %d ms", connection, idle_ms)
                    self._counters.connections_idle_closed += 1
                    connection.close()
        self._sweep = self.loop.call_later(self._sweep_s, self._look_around)
