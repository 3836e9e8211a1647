"""One client's connection: it reads frames, has them handled and writes the responses, in order, one request at a time.

    readable → recv_into → frames → `Dispatcher` → chunks → writev

It uses no asyncio task, stream or transport: the loop only calls it when the socket is readable or writable. Requests that
arrive in one read are answered in one write.

A connection reads unless one of these independent conditions holds, which are therefore flags and not a state machine:

| nothing is read while | flag | until |
|---|---|---|
| a response is pending | `is_waiting` | `respond` |
| the peer does not read its responses | `_unsent` | the last byte is sent |
| one read brought many requests, and other connections go first | `_is_held` | the next round of the loop |
| many connections move many bytes: see `turns` | `_is_held` | its turn |
| there is no room for a large request (`queued.max.request.bytes`) | `_is_held` | another one is finished |
| the client has exceeded its quota (`mute`) | `_is_muted` | the throttle time has passed |
| the connection closes once everything is sent | `_is_ending` | it is closed |

A connection therefore never holds more than one request, the bytes read along with it (at most `SHARED_BYTES`, or the size of its
last request), and one turn's responses. After a small request it reads into the buffer that all connections share. After a large
request it expects another of that size, and reads it into a separate buffer, not past its end, without copying it.

A connection is also the `Request` that handlers get, because it has only one at a time. `answer_writer` encodes and sends the
responses; this module reads the requests and takes turns with other connections.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from time import monotonic, perf_counter_ns

from tidelog.broker.net.answer_rounds import SMALL_BYTES
from tidelog.broker.net.lingering_close import LINGER_S, may_close
from tidelog.broker.net.read_buffers import LARGE_BYTES, SHARED_BYTES
from tidelog.broker.requests.request import Outcome
from tidelog.broker.server.answer_writer import AnswerWriter
from tidelog.broker.server.connection_server import ConnectionServer
from tidelog.broker.server.secured.authentication import MAX_BYTES, MAX_HELD_BYTES, Authentication
from tidelog.broker.settings.broker_config import Listener
from tidelog.broker.settings.listener_security import ListenerSecurity
from tidelog.security.principal import Principal
from tidelog.wire.codec import Bytes

FLUSH_BYTES = 64 * 1024
"""Up to this many bytes, the responses of one turn are sent in one write."""

RECEIVED_AT_ONCE = 2 * 1024 * 1024
"""The most bytes of a large request that one turn receives: a millisecond or two if the memory is new."""

REQUESTS_A_TURN = 32
"""The most requests that one turn answers; then other connections go first."""

TURN_NS = 2_000_000
"""After this many ns, a turn answers no further request: other connections go first."""

_SIZE = struct.Struct(">i")


class Connection(AnswerWriter):
    """One client connection of a server. Use only on the event loop's thread."""

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
        # The last request's header fields; the next header only needs comparing with them: see `Dispatcher`.
        self.client_id_bytes = b""
        self.client_id_length = -2
        self.header_bytes = 10
        self._recv_into = sock.recv_into
        self._buffers = server.buffers
        self._shared = server.buffers.shared
        self._handle: Callable[[Connection, memoryview, int, int], list[Bytes] | Outcome] = server.dispatcher.handle
        self._max_request_bytes = server.max_request_bytes
        self._guard: Authentication | None = None
        # Reading: the rest of a frame, small or large.
        self._rest: bytes = b""
        self._large: memoryview | None = None
        self._filled = 0
        self._counted = 0
        self._limit = 0
        self._is_reading = True
        self._loop.add_reader(self.fd, self._on_readable)
        self._answers.owners[self.fd] = self._take_back

    # --- who it is

    def guard(self, security: ListenerSecurity) -> None:
        """Handle requests with `Authentication` until the client has authenticated with SASL."""
        self._guard = Authentication(self, security)
        self._handle = self._guard.handle
        self._max_request_bytes = MAX_BYTES
        self._shared = self._shared[:MAX_HELD_BYTES]  # Read no more than that at once: unhandled bytes are kept.

    def authenticated(self, principal: Principal, *, is_forever: bool) -> None:
        self.principal = principal
        self._max_request_bytes = self._server.max_request_bytes
        self._shared = self._buffers.shared
        if is_forever:
            self._handle = self._server.dispatcher.handle

    def dispatch(self, data: memoryview, position: int, end: int) -> list[Bytes] | Outcome:
        """Handle a frame that the guard has accepted."""
        return self._server.dispatcher.handle(self, data, position, end)

    # --- what the server does

    def end(self) -> None:
        """Close once everything is sent, and begin no further request. Drop a waiting request, such as a delayed fetch."""
        self._is_ending = True
        if self.is_idle or (self._gone is not None and not self._unsent):
            self._leave()

    def _leave(self) -> None:
        """Close as soon as the peer's system has received all responses: see `lingering_close`."""
        if self.is_closed or not self._is_settled():
            return
        self._is_reading = False
        self._loop.remove_reader(self.fd)
        if may_close(self._socket, self._shared):
            self.close()
        else:
            self._loop.call_later(LINGER_S, self._leave)

    def close(self) -> None:
        """Close the connection now. Idempotent."""
        self._is_settled()
        if self.is_closed:
            return
        self.is_closed = True
        del self._answers.owners[self.fd]
        if self._mute is not None:
            self._mute.cancel()
        loop = self._loop
        loop.remove_reader(self.fd)
        if self._unsent:
            loop.remove_writer(self.fd)
            self._unsent = []
            self._hold_bytes(-self.held_bytes)
        self._close_socket()
        self._release()
        self._rest = b""
        gone, self._gone = self._gone, None
        if gone is not None:
            gone()
        self._server.forget(self.connection_id, self.peer_host)

    def close_copy(self) -> None:
        """Close this process's copy of the socket after a fork. The peer notices nothing."""
        self._socket.close()

    def refuse(self, why: str) -> None:
        """Close the connection, and log why."""
        self._counters.malformed_requests += 1
        self._server.limited_log.warning("%s was closed: %s", self, why)
        self.close()

    def __str__(self) -> str:
        return f"connection {self.connection_id} from {self.peer_host}"

    # --- reading

    def _on_readable(self) -> None:
        if self._is_held:
            return
        if self.is_waiting or self._unsent:
            self._not_now()
            return
        if (self._large is not None or self._limit > LARGE_BYTES) and self._turns.must_wait:
            self._wait_for_turn()
            return
        self._receive()

    def _receive(self) -> bool:
        """Read once, and answer the complete requests. Return whether any bytes have arrived."""
        large = self._large
        try:
            if large is not None:
                have = self._filled
                if not self._buffers.may_go_on(self):
                    self._wait_for_room()
                    return False
                received = self._recv_into(large[have : min(self._limit, have + RECEIVED_AT_ONCE)])
            elif self._limit > LARGE_BYTES and not self._rest and self._buffers.has_room:
                # After a large request the next one is often as large.
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
            if self._large is not None and not self._filled:
                self._release()
            return False
        except OSError:
            self.close()
            return False
        if not received:
            # A peer that sends no more may still read its responses.
            (self.close if self._is_settled() else self._stop_reading)()
            return False
        self.active_at = now = monotonic()
        turns = self._turns
        if turns.latest is not self:
            turns.latest, turns.mixed_at = self, now
        self._counters.received_bytes += received
        filled = have + received
        if filled > SMALL_BYTES:
            self._answers.flush()  # Others' small responses do not wait until these requests are handled.
        if large is self._large:
            self._filled = filled
            self._answers.bulk.add(self.fd)
            self._counted += received
            self._buffers.used_bytes += received
            turns.moved(received)
        if large is not self._large or filled >= self._limit or have < 4:  # Else a large frame is still incomplete.
            self._consume(large, filled)
        return True

    def _consume(self, buffer: memoryview, end: int) -> None:
        """Answer the complete frames in `buffer[:end]`, and keep the bytes after them."""
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
                    self._write_now(out, out_bytes)
                self.refuse(f"the size of a request is {size} bytes: expected 0 to {self._max_request_bytes}")
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
                    self.is_waiting = True
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
                    self._write_now(out, out_bytes)
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
        """Keep unhandled bytes: part of a frame, or whole frames if other connections go first."""
        left = end - position
        if not left:
            self._release()
            return
        if self.is_closed:
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
        """Keep a frame (see `FramedRequest.keep_frame`). A large frame is not copied."""
        self._buffers.used_bytes += end - position
        if data is self._large and end == self._filled:
            self._large = None
            self._filled = 0
            counted, self._counted = self._counted, 0
            self._buffers.discount(counted, self)
            return data[position:end]
        return memoryview(bytearray(data[position:end]))

    def discount(self, size: int) -> None:
        self._buffers.discount(size)

    @property
    def is_within_large_request(self) -> bool:
        """Whether part of a large request has arrived and the broker waits for the peer to send the rest."""
        return self._large is not None and not self._is_held and not self.is_waiting

    # --- whose turn it is

    def _hold(self) -> None:
        self._is_held = True
        self._loop.call_soon(self._resume)

    def _wait_for_turn(self) -> None:
        self._is_held = True
        self._stop_reading()
        self._turns.wait(self._have_turn)

    def _have_room(self) -> None:
        """Queue for a turn: there may be room for a large request now. Connections get room in the order of their requests."""
        self._turns.wait(self._have_turn)

    def _have_turn(self) -> None:
        self._resume()
        if self._is_reading and self._receive() and self._is_reading and self._turns.must_wait:
            self._wait_for_turn()  # Do not wait until the loop reports the socket: it reports sockets in its own order.

    def _go_on(self) -> None:
        """Handle the bytes that the peer has sent meanwhile, or close: all responses have been sent."""
        if self._is_ending:
            self._leave()
        elif self._is_muted:
            return
        elif self._has_frame():
            if not self._is_held:
                self._hold()
        elif not self._is_reading:
            self._is_reading = True
            self._loop.add_reader(self.fd, self._on_readable)

    def _has_frame(self) -> bool:
        """Whether a complete frame has arrived, or one whose size is refused."""
        have, data = (len(self._rest), self._rest) if self._large is None else (self._filled, self._large)
        size: int = _SIZE.unpack_from(data)[0] if have >= 4 else have  # Too little for a frame of any size.
        return 4 + size <= have or size > self._max_request_bytes

    def _resume(self) -> None:
        if self._is_muted:
            return
        self._is_held = False
        if self.is_closed or self._is_ending or self.is_waiting or self._unsent:
            return
        if self._rest:
            rest, self._rest = self._rest, b""
            end = len(rest)
            self._shared[:end] = rest
            self._consume(self._shared, end)
        elif self._large is not None:
            self._consume(self._large, self._filled)
        if not self._is_reading and not self.is_closed and not (self.is_waiting or self._unsent or self._is_held):
            self._is_reading = True
            self._loop.add_reader(self.fd, self._on_readable)

    def _not_now(self) -> None:
        """Stop reading: the peer sends more requests before it has its response. Close the connection if the peer has left."""
        try:
            gone = not self._socket.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            gone = True
        if gone and self._is_settled():
            self.close()
        else:
            self._stop_reading()

    def _stop_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self.fd)
