"""One client's connection: bytes become frames, frames become answers, answers become bytes. In order, one request at a time.

    readable → recv_into → frames → `Dispatcher` → chunks → writev

There is no task, no stream and no transport: the loop calls when the socket is readable or writable, nothing else. Requests that
came with one read are answered with one write.

It reads unless one of these holds. They do not depend on each other, so they are flags and no table of states:

| nothing is read while | flag | until |
|---|---|---|
| a request is answered later | `_is_waiting` | `respond` |
| the peer does not take its answers: it gets no further ones | `_unsent` | the last byte is sent |
| it is other connections' turn: many requests came with one read | `_is_held` | the loop came round |
| ... or many bytes came with many connections: see `turns` | `_is_held` | its turn |
| there is no room for a large request (`queued.max.request.bytes`) | `_is_held` | another one is over |
| it has used more than its quota (`mute`) | `_is_muted` | some time has passed |
| it ends, once nothing is owed to the peer | `_is_ending` | it is closed |

So a connection never holds more than one request, what was read along with it (`SHARED_BYTES` at most, or as much as its last
request had), and one turn's answers. A read goes into the memory that all connections share when the last request was small.
After a large one the next is expected to be as large: it is read into a buffer of its own, no further than to its end, and
nothing of it is ever copied.

A connection is the `Request` of its handlers, as it has only one at a time. How its answers become bytes, and wait for the peer,
is `answer_writer`; this is the way of the requests, and whose turn it is.
"""

from __future__ import annotations

import socket
import struct
from time import monotonic, perf_counter_ns
from typing import TYPE_CHECKING

from tidelog.broker.server.answer_writer import AnswerWriter
from tidelog.broker.server.lingering_close import LINGER_S, may_close
from tidelog.broker.server.read_buffers import LARGE_BYTES, SHARED_BYTES
from tidelog.broker.server.request import Outcome
from tidelog.broker.server.secured.authentication import MAX_BYTES, MAX_HELD_BYTES, Authentication

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.broker.server.connection_server import ConnectionServer
    from tidelog.broker.server.secured.listener_security import ListenerSecurity
    from tidelog.broker.settings.broker_config import Listener
    from tidelog.security.principal import Principal
    from tidelog.wire.codec import Bytes

FLUSH_BYTES = 64 * 1024
"""Answers of one turn are collected up to so many bytes."""

RECEIVED_AT_ONCE = 2 * 1024 * 1024
"""Bytes of a large request that are received in one turn: a millisecond or two, where the memory is new."""

REQUESTS_A_TURN = 32
"""Then the other connections have theirs."""

TURN_NS = 2_000_000
"""The same for requests that take longer."""

_SIZE = struct.Struct(">i")


class Connection(AnswerWriter):
    """One connection. Belongs to its server, on the loop's thread."""

    __slots__ = (
        "_buffers",
        "_counted",
        "_filled",
        "_guard",
        "_handle",
        "_is_reading",
        "_large",
        "_limit",
        "_max_request_bytes",
        "_recv_into",
        "_rest",
        "_shared",
        "_socket",
        "api_version",
        "client_id_bytes",
        "client_id_length",
        "connection_id",
        "header_bytes",
        "listener",
        "peer_host",
    )

    def __init__(
        self, server: ConnectionServer, sock: socket.socket, connection_id: int, peer_host: str, listener: Listener
    ) -> None:
        super().__init__(server, sock)
        self.connection_id = connection_id
        self.peer_host = peer_host
        self.listener = listener
        self.api_version = 0
        # What the last request's header had, so that the next one's need only be compared with it: see `Dispatcher`.
        self.client_id_bytes = b""
        self.client_id_length = -2
        self.header_bytes = 10
        self._socket = sock
        self._recv_into = sock.recv_into
        self._buffers = server.buffers
        self._shared = server.buffers.shared
        self._handle: Callable[[Connection, memoryview, int, int], list[Bytes] | Outcome] = server.dispatcher.handle
        self._max_request_bytes = server.max_request_bytes
        self._guard: Authentication | None = None
        # Reading: what is left of a frame, small or large.
        self._rest: bytes = b""
        self._large: memoryview | None = None
        self._filled = 0
        self._counted = 0
        self._limit = 0
        self._is_reading = True
        self._loop.add_reader(self.fd, self._on_readable)

    # --- who it is

    def guard(self, security: ListenerSecurity) -> None:
        """Refuse requests before SASL authentication."""
        self._guard = Authentication(self, security)
        self._handle = self._guard.handle
        self._max_request_bytes = MAX_BYTES
        self._shared = self._shared[:MAX_HELD_BYTES]  # More is not read at once: what is not looked at yet is kept.

    def authenticated(self, principal: Principal, *, is_forever: bool) -> None:
        """Go on with requests of `principal`; a session that has an end is looked after further."""
        self.principal = principal
        self._max_request_bytes = self._server.max_request_bytes
        self._shared = self._buffers.shared
        if is_forever:
            self._handle = self._server.dispatcher.handle

    def dispatch(self, data: memoryview, position: int, end: int) -> list[Bytes] | Outcome:
        """Answer a frame that the guard lets pass."""
        return self._server.dispatcher.handle(self, data, position, end)

    # --- what the server does

    def end(self) -> None:
        """Close it as soon as nothing is owed to the peer; no further request is begun. A request that only waits is dropped."""
        self._is_ending = True
        if self.is_idle or (self._gone is not None and not self._unsent):
            self._leave()

    def _leave(self) -> None:
        """Close it as soon as the peer's system has all answers: see `lingering_close`."""
        if self._is_closed:
            return
        self._is_reading = False
        self._loop.remove_reader(self.fd)
        if may_close(self._socket, self._shared):
            self.close()
        else:
            self._loop.call_later(LINGER_S, self._leave)

    def close(self) -> None:
        """Close it now. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._mute is not None:
            self._mute.cancel()
        loop = self._loop
        loop.remove_reader(self.fd)
        if self._unsent:
            loop.remove_writer(self.fd)
            self._unsent = []
            self._hold_bytes(-self._held_bytes)
        self._socket.close()
        self._release()
        self._rest = b""
        gone, self._gone = self._gone, None
        if gone is not None:
            gone()
        self._server.forget(self.connection_id, self.peer_host)

    def close_copy(self) -> None:
        """Close the socket of a copy of the process. Its peer notices nothing."""
        self._socket.close()

    def refuse(self, why: str) -> None:
        """Close it, and say why on the log."""
        self._counters.malformed_requests += 1
        self._server.limited_log.warning("%s was closed: %s", self, why)
        self.close()

    def __str__(self) -> str:
        return f"connection {self.connection_id} from {self.peer_host}"

    # --- reading

    def _on_readable(self) -> None:
        if self._is_held:
            return
        if self._is_waiting or self._unsent:
            self._not_now()
            return
        if (self._large is not None or self._limit > LARGE_BYTES) and self._turns.must_wait:
            self._wait_for_turn()
            return
        self._receive()

    def _receive(self) -> bool:
        """Read once, and answer what is complete; whether something had come."""
        large = self._large
        try:
            if large is not None:
                have = self._filled
                if not self._buffers.may_go_on(self):
                    self._wait_for_room()
                    return False
                received = self._recv_into(large[have : min(self._limit, have + RECEIVED_AT_ONCE)])
            elif self._limit > LARGE_BYTES and not self._rest and self._buffers.has_room:
                # The last request was a large one: the next may well be as large.
                self._large = large = self._buffers.take(self._limit)
                have = self._filled = 0
                received = self._recv_into(large[: min(self._limit, RECEIVED_AT_ONCE)])
            else:
                large = self._shared
                rest = self._rest
                have = len(rest)
                if have:
                    large[:have] = rest
                    received = self._recv_into(large[have:])
                    self._rest = b""
                else:
                    received = self._recv_into(large)
        except (BlockingIOError, InterruptedError):
            self._release_if_empty()
            return False
        except OSError:
            self.close()
            return False
        if not received:
            self.close()
            return False
        self.active_at = monotonic()
        self._counters.received_bytes += received
        filled = have + received
        if large is self._large:
            self._filled = filled
            self._counted += received
            self._buffers.used_bytes += received
            self._turns.moved(received)
        if large is self._large and filled < self._limit and have >= 4:
            return True  # A large frame, and not all of it is there.
        self._consume(large, filled)
        return True

    def _consume(self, buffer: memoryview, end: int) -> None:
        """Answer the frames in `buffer[:end]`, and keep what is left over."""
        handle = self._handle
        position = 0
        out: list[Bytes] = []
        out_bytes = 0
        requests = 0
        began_ns = 0
        while end - position >= 4:
            (size,) = _SIZE.unpack_from(buffer, position)
            if not 0 <= size <= self._max_request_bytes:
                if out:
                    self._write(out, out_bytes)
                self.refuse(f"a request of {size} bytes: expected 0 to {self._max_request_bytes}")
                return
            frame_end = position + 4 + size
            if frame_end > end:
                break
            self._limit = 4 + size
            self.request_bytes = size
            answer = handle(self, buffer, position + 4, frame_end)
            began_ns = began_ns or self.started_ns
            position = frame_end
            if answer is Outcome.LATER:
                early, self._early = self._early, None
                if early is None:
                    self._is_waiting = True
                    break
                answer = early
            if type(answer) is list:
                for chunk in answer:
                    out_bytes += len(chunk)
                out = out + answer if out else answer
                if out_bytes > FLUSH_BYTES:
                    full, full_bytes, out, out_bytes = out, out_bytes, [], 0
                    if not self._write(full, full_bytes):
                        break
            elif answer is Outcome.CLOSE:
                if out:
                    self._write(out, out_bytes)
                self.close()
                return
            requests += 1
            if position < end:
                if self._is_muted:
                    break
                if requests == REQUESTS_A_TURN or perf_counter_ns() - began_ns > TURN_NS:
                    self._hold()
                    break
        if position < end or self._large is not None:
            self._keep(buffer, position, end)
        if out:
            self._write(out, out_bytes)
        if self._is_ending and self.is_idle:
            self._leave()

    def _keep(self, buffer: memoryview, position: int, end: int) -> None:
        """Keep what is left over: a part of a frame; if it is not this connection's turn, maybe whole ones."""
        left = end - position
        if not left:
            self._release()
            return
        if self._is_closed:
            return
        total = 4 + _SIZE.unpack_from(buffer, position)[0] if left >= 4 else 4
        if total <= LARGE_BYTES and left <= SHARED_BYTES:
            self._rest = bytes(buffer[position:end])
            self._release()
            return
        buffers = self._buffers
        large = self._large
        if large is not None and len(large) >= max(total, left):
            if position:
                large[:left] = buffer[position:end]
        elif large is None and not buffers.has_room:
            self._rest = bytes(buffer[position:end])
            self._wait_for_room()
            return
        else:
            self._large = buffers.take(max(total, left))
            self._large[:left] = buffer[position:end]
            if large is not None:
                buffers.give_back(large)
        self._filled = left
        counted, self._counted = self._counted, left
        buffers.used_bytes += left - counted
        self._limit = max(total, left)

    def _release(self) -> None:
        large, self._large = self._large, None
        self._filled = 0
        if large is not None:
            counted, self._counted = self._counted, 0
            self._buffers.give_back(large)
            self._buffers.discount(counted, self)

    def _wait_for_room(self) -> None:
        self._is_held = True
        self._stop_reading()
        self._buffers.when_room(self._have_room)

    def keep_frame(self, data: memoryview, position: int, end: int) -> memoryview:
        """See `FramedRequest.keep_frame`. A large frame is not copied."""
        if data is self._large and end == self._filled:
            self._large = None
            self._filled = 0
            counted, self._counted = self._counted, 0
            self._buffers.used_bytes += end - position
            self._buffers.discount(counted, self)
            return data[position:end]
        self._buffers.used_bytes += end - position
        return memoryview(bytearray(data[position:end]))

    def discount(self, size: int) -> None:
        """The memory of a frame that was kept is no longer needed."""
        self._buffers.discount(size)

    @property
    def is_within_large_request(self) -> bool:
        """Whether a part of a large request has come, and the rest is the peer's to send."""
        return self._large is not None and not self._is_held and not self._is_waiting

    def _release_if_empty(self) -> None:
        if self._large is not None and not self._filled:
            self._release()

    # --- whose turn it is

    def _hold(self) -> None:
        self._is_held = True
        self._loop.call_soon(self._resume)

    def _wait_for_turn(self) -> None:
        self._is_held = True
        self._stop_reading()
        self._turns.wait(self._have_turn)

    def _have_room(self) -> None:
        """There may be room: it is taken in the order in which it was waited for, before others can take it."""
        self._turns.wait(self._have_turn)

    def _have_turn(self) -> None:
        self._resume()
        if self._is_reading and self._receive() and self._is_reading and self._turns.must_wait:
            self._wait_for_turn()  # Without waiting for the loop's word: that would come in the order of the sockets.

    def _go_on(self) -> None:
        """Nothing is owed to the peer any more: look at what it has sent meanwhile."""
        if self._is_ending:
            self._leave()
        elif self._is_muted:
            return
        elif self._rest or self._large is not None:
            if not self._is_held:
                self._hold()
        elif not self._is_reading:
            self._is_reading = True
            self._loop.add_reader(self.fd, self._on_readable)

    def _resume(self) -> None:
        if self._is_muted:
            return
        self._is_held = False
        if self._is_closed or self._is_ending or self._is_waiting or self._unsent:
            return
        if self._rest:
            rest, self._rest = self._rest, b""
            end = len(rest)
            self._shared[:end] = rest
            self._consume(self._shared, end)
        elif self._large is not None:
            self._consume(self._large, self._filled)
        if not self._is_reading and not self._is_closed and not (self._is_waiting or self._unsent or self._is_held):
            self._is_reading = True
            self._loop.add_reader(self.fd, self._on_readable)

    def _not_now(self) -> None:
        """The peer sends more while it is owed an answer, or it has gone."""
        try:
            gone = not self._socket.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            gone = True
        if gone and not self._unsent:
            self.close()
        else:
            self._stop_reading()

    def _stop_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self.fd)
