"""Listens, accepts, limits, and ends: the sockets of a broker. `connection` has the work of one connection.

| limit | what happens |
|---|---|
| `max.connections`, of all and of a listener | further ones wait in the system's queue, as with Kafka, until another one ends |
| `max.connection.creation.rate`, of all and of a listener | the listener accepts nobody for a while |
| the quota `connection_creation_rate` of an address | the connection is closed, after a while |
| half of the open files that the process may have | the other half belongs to the logs: see below |
| `max.connections.per.ip`, `….overrides` | closed at once |
| `connections.max.idle.ms` | a connection on which nothing moved for that time is closed, unless it is the broker that is owed |
| the memory of answers that nobody reads (`unsent_bytes`) | fetches are cut short; what has taken nothing for 10 s is closed |
| the memory of large requests (`queued.max.request.bytes`, 512 MiB) | one that sends nothing for 10 s is closed |
| `socket.request.max.bytes` | a frame that says it is larger: its connection is closed |

Where connections have their half, or open files are short, a new connection takes the place of the one that is idle longest:
for `IDLE_S` at least, or `UNUSED_S` where it never asked for anything. Is there none, the new one is closed. So clients that say
nothing neither take the logs' files nor keep others out.

Refusals are logged, a few of them (`RateLimitedLog`): a client that sends garbage must not fill the operator's disk.
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

from tidelog.broker.api import Api
from tidelog.broker.node import Node
from tidelog.broker.quotas.connection_limits import ConnectionLimits
from tidelog.broker.server.bound_sockets import BoundSockets, bind
from tidelog.broker.server.connection import Connection
from tidelog.broker.server.dispatcher import APIS, Dispatcher
from tidelog.broker.server.event_loop import LoopThreads
from tidelog.broker.server.listeners import Listener
from tidelog.broker.server.rate_limited_log import RateLimitedLog
from tidelog.broker.server.read_buffers import ReadBuffers
from tidelog.broker.server.secured.listener_security import ListenerSecurity
from tidelog.broker.server.secured.tls_connection import TlsConnection
from tidelog.broker.server.secured.tls_socket import TlsSocket
from tidelog.broker.server.turns import Turns
from tidelog.broker.server.unsent_bytes import LOOK_S, STALLED_S, URGENT_S
from tidelog.metadata.records import UserScramCredentialRecord
from tidelog.security.client_config import PLAINTEXT
from tidelog.security.scram import SCRAM_IDS, ScramCredential
from tidelog.security.scram_disguise import KnownUser
from tidelog.storage.segment.descriptors import SPARE

logger = logging.getLogger("tidelog.broker")

ACCEPTS_A_TURN = 64
"""Then those who are connected have theirs."""

SWEEP_S = 10.0
"""Interval of the checks for idle connections and unused memory; shorter if the idle limit is."""

OUT_OF_FILES_WAIT_S = 0.5

HANDSHAKE_THREADS = 2
"""Public keys take a millisecond of a processor each: the loop serves others meanwhile."""

MAX_THROTTLED = 1000
"""Connections that wait for their end; further ones are closed at once."""

MAX_KNOWN_USERS = 64
"""The users whose salts and iterations are the model for unknown users."""

IDLE_S = 5.0
UNUSED_S = 0.5
"""Where open files are short, a connection without a request for that time, or that never had one, makes room for another."""


def _scram_credential(node: Node, mechanism: str, name: str) -> ScramCredential | None:
    """Return what the metadata has of a user: credentials that Kafka's tools have made."""
    found = node.manager.image.scram.get((name, SCRAM_IDS[mechanism]))
    return None if found is None else _credential(found)


_MECHANISMS = {number: name for name, number in SCRAM_IDS.items()}


def _known_users(node: Node) -> list[KnownUser]:
    """Return some users of SCRAM, those that were made first: what others are answered looks like theirs."""
    return [
        KnownUser(one.name, _MECHANISMS[one.mechanism], _credential(one))
        for one in islice(node.manager.image.scram.values(), MAX_KNOWN_USERS)
        if one.mechanism in _MECHANISMS
    ]


def _credential(record: UserScramCredentialRecord) -> ScramCredential:
    return ScramCredential(record.salt, record.stored_key, record.server_key, record.iterations)


class BrokerServer:
    """Serves `node` on its configuration's listeners. Everything happens on the thread of the loop that `start` is called in."""

    def __init__(self, node: Node, apis: Iterable[Api] = APIS) -> None:
        config = node.config
        self.node = node
        self.loop = asyncio.get_running_loop()
        self.max_request_bytes = config.socket_request_max_bytes
        self.buffers = ReadBuffers(config.queued_max_request_bytes)
        self.turns = Turns(self.loop.call_soon)
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
        """By a listening socket, the connection that came too soon: it waits, and those after it."""
        self._throttled: set[socket.socket] = set()
        """Connections of addresses that make too many; they are closed soon."""
        idle_ms = config.connections_max_idle_ms
        self._sweep_s = SWEEP_S if idle_ms < 0 else min(SWEEP_S, max(idle_ms / 4000, 0.01))
        self._sweep: asyncio.TimerHandle | None = None
        self._empty: asyncio.Event | None = None
        self._looked_at = 0.0

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """Where it listens, with the ports that were found."""
        return self.node.listeners

    async def start(self, bound: BoundSockets | None = None) -> None:
        """Listen, at sockets that are `bound` already or at its own; they are closed at the end.

        Raises InvalidArgumentError if an address cannot be bound; nothing is left open then.
        """
        self._sockets = (bound or bind(self.node.config)).take()
        self.node.listeners = tuple(listener for _, listener in self._sockets)
        self._accept_more()
        self._sweep = self.loop.call_later(self._sweep_s, self._look_around)

    async def stop(self, grace_s: float = 5.0) -> None:
        """Stop listening, let what was begun come to its end for at most `grace_s`, close everything."""
        self._accept_no_more()
        self._close_sockets()
        if self._sweep is not None:
            self._sweep.cancel()
        self._empty = asyncio.Event()
        self.node.delayed_fetches.end()  # Delayed fetches get the records that have come so far.
        for connection in tuple(self.connections.values()):
            connection.end()
        if self.connections and grace_s > 0:
            try:
                await asyncio.wait_for(self._empty.wait(), grace_s)
            except TimeoutError:
                logger.info("%d connections did not close within %.1f s", len(self.connections), grace_s)
        for connection in tuple(self.connections.values()):
            connection.close()
        self.handshakes.close()
        for tls in self.shaking:
            tls.stepped()  # Or its socket, closed meanwhile, would stay open: that thread does not return.

    def close_copies(self) -> None:
        """In a copy of the process: close what is the real one's business, without a word to anybody."""
        self._close_sockets()
        for connection in self.connections.values():
            connection.close_copy()

    # --- for connections

    def forget(self, connection_id: int, peer_host: str) -> None:
        """A connection is closed."""
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
                    "listener %s: the limit of connections is reached, there are %d: others wait",
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
                self.limited_log.warning("no connection can be accepted for now: %s", error)
                self._accept_no_more()
                self.loop.call_later(OUT_OF_FILES_WAIT_S, self._accept_again)
                return
            if (len(self.connections) >= self._max_by_files or sock.fileno() >= self._last_fd) and not self._make_room():
                self.limited_log.warning(
                    "%d connections: the other file descriptors are for the logs, one more was closed", len(self.connections)
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
        """Close the connection that is idle longest, if one is for long enough; whether that is so."""
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
            "%d connections: file descriptors are short, %s was idle longest and is closed", len(self.connections), oldest
        )
        self._counters.connections_idle_closed += 1
        oldest.close()
        return True

    def _accept_again(self) -> None:
        self._accept_more()

    def _throttle(self, sock: socket.socket, wait_ms: int) -> None:
        """Close a connection of an address that makes too many: in a while, so that its client does not try again at once."""
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
            self.limited_log.warning("%s has %d connections already, its limit: one more was closed", host, count)
            self._counters.connections_refused += 1
            sock.close()
            return
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if config.socket_send_buffer_bytes > 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, config.socket_send_buffer_bytes)
        except OSError:  # Gone before it began.
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
        """More was kept than unsent answers may take: close a connection soon, if it belongs to a client that does not read."""
        now = monotonic()
        if now - self._looked_at >= LOOK_S:
            self._looked_at = now
            unsent = self.node.unsent
            patience_s = STALLED_S if unsent.used_bytes < 2 * unsent.max_bytes else URGENT_S
            self.loop.call_soon(self.close_stalled, now - patience_s)

    def close_stalled(self, since: float) -> None:
        """Close connections that have taken nothing `since`, the largest first, until unsent answers take half their budget."""
        unsent = self.node.unsent
        if unsent.used_bytes < unsent.max_bytes // 2:
            return
        stalled = [one for one in self.connections.values() if one.held_bytes and one.active_at <= since]
        for connection in sorted(stalled, key=lambda one: -one.held_bytes):
            self.limited_log.warning("%s was closed: it does not read its answers, %d bytes", connection, connection.held_bytes)
            self._counters.connections_stalled_closed += 1
            connection.close()
            if unsent.used_bytes < unsent.max_bytes // 2:
                break

    def close_slow_senders(self, since: float) -> None:
        """Close connections that have sent nothing of their large request `since`, where others wait for the memory."""
        if self.buffers.is_waited_for:
            for connection in tuple(self.connections.values()):
                if connection.is_within_large_request and connection.active_at <= since:
                    self.limited_log.warning("%s was closed: it stopped sending a large request while others wait", connection)
                    self._counters.connections_stalled_closed += 1
                    connection.close()

    def _look_around(self) -> None:
        """Close who is idle, let memory go."""
        self.buffers.trim()
        self.close_stalled(monotonic() - STALLED_S)
        self.close_slow_senders(monotonic() - STALLED_S)
        idle_ms = self.node.config.connections_max_idle_ms
        if idle_ms >= 0:
            oldest = monotonic() - idle_ms / 1000
            for connection in tuple(self.connections.values()):
                if connection.active_at < oldest and not connection.is_waiting:
                    logger.debug("%s was idle for %d ms: closed", connection, idle_ms)
                    self._counters.connections_idle_closed += 1
                    connection.close()
        self._sweep = self.loop.call_later(self._sweep_s, self._look_around)
