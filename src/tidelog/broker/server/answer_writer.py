"""The write side of a connection: it sends responses as fast as the peer reads them, and keeps and counts the unsent bytes.

    response at once, or `respond` later → chunks → queued for a thread, if small, or writev → kept while the buffer is full

A connection has at most one response pending: `Connection` reads nothing until that response is queued or sent, and while bytes
are known to be unsent. Responses are therefore sent in the order of their requests. Unsent bytes count against the budget of all
connections (`unsent_bytes`).
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from time import monotonic, perf_counter, perf_counter_ns

from tidelog.broker.dispatch.served_api import ServedApi
from tidelog.broker.loop.timers import Timer
from tidelog.broker.net.answer_rounds import SMALL_BYTES
from tidelog.broker.net.bulk_sender import LARGE_BYTES
from tidelog.broker.net.unsent_bytes import bytes_in_memory
from tidelog.broker.requests.request import Outcome, Wide
from tidelog.broker.requests.wide_requests import discard
from tidelog.broker.server.connection_server import ConnectionServer
from tidelog.records.kernel import is_in_memory
from tidelog.security.principal import ANONYMOUS
from tidelog.wire.codec import Bytes, Message

logger = logging.getLogger("tidelog.broker")

MAX_CHUNKS = 1024
"""The most buffers that one `writev` call takes (IOV_MAX)."""

SENT_AT_ONCE = 2 * 1024 * 1024
"""The most bytes sent in one turn of the loop: about a millisecond of work."""


class AnswerWriter:
    """The base class of `Connection` that writes responses. Do not use it alone."""

    __slots__ = (
        "_answers",
        "_counters",
        "_early",
        "_gone",
        "_is_ending",
        "_is_handed_over",
        "_is_held",
        "_is_muted",
        "_loop",
        "_mute",
        "_queued",
        "_returned_bytes",
        "_send",
        "_server",
        "_socket",
        "_turns",
        "_unsent",
        "_waits_to_send",
        "_writev",
        "active_at",
        "busy_ns",
        "client_id",
        "correlation_id",
        "fd",
        "held_bytes",
        "is_closed",
        "is_waiting",
        "principal",
        "request_bytes",
        "served",
        "started_ns",
    )

    def __init__(self, server: ConnectionServer, sock: socket.socket) -> None:
        self.principal = ANONYMOUS
        self.client_id: str | None = None
        self.request_bytes = 0
        self.correlation_id = 0
        self.served: ServedApi | None = None
        self.started_ns = 0
        self.busy_ns = 0
        """How long the delayed response has kept the loop busy, in ns; measured only if a request quota needs it (`quotas`)."""
        self.active_at = monotonic()
        self.fd = sock.fileno()
        self._server = server
        self._loop = server.loop
        self._turns = server.turns
        self._answers = server.answers
        self._socket = sock
        self._send = sock.send
        self._writev: Callable[[list[Bytes]], int] = getattr(sock, "writev", None) or partial(os.writev, self.fd)
        self._counters = server.node.metrics.counters
        self.is_waiting = False
        self._early: list[Bytes] | None = None
        self._unsent: list[Bytes] = []
        self._waits_to_send = False
        self._is_handed_over = False
        self._queued = 0
        """The number of the last response that was queued (`AnswerRounds`); 0 if none was since the connection was settled."""
        self._returned_bytes = 0
        """How many of the unsent bytes were queued before, and are counted as sent."""
        self.held_bytes = 0
        """The memory that the connection's unsent responses take, in bytes."""
        self._gone: Callable[[], None] | None = None
        self.is_closed = False
        # Reasons why the connection is not read.
        self._is_held = False
        self._is_muted = False
        self._mute: Timer | None = None
        self._is_ending = False

    def close(self) -> None:
        """Close the connection now. Idempotent."""
        raise NotImplementedError

    def _go_on(self) -> None:
        """Continue reading, because all responses have been sent."""
        raise NotImplementedError

    def _stop_reading(self) -> None:
        raise NotImplementedError

    def _resume(self) -> None:
        """Handle the bytes that have arrived while reading was paused, and continue reading."""
        raise NotImplementedError

    # --- what a handler sees

    @property
    def api_name(self) -> str:
        return "nothing" if self.served is None else self.served.metrics.name

    def respond(self, response: Message | Wide | Outcome, *, is_wide: bool = False) -> None:
        """Send a delayed response. Call it once; it does nothing if the connection is closed."""
        if response is Outcome.LATER:
            return
        heavy = self._server.node.heavy
        if self.is_closed:
            if is_wide and not isinstance(response, Outcome | Wide):
                heavy.run(partial(discard, response), _nothing)
            return
        if isinstance(response, Outcome):
            if response is Outcome.CLOSE:
                self._loop.call_soon(self.close)
            else:
                if self.served is not None:
                    self.served.throttle(self, None)
                self.respond_chunks([])
            return
        served = self.served
        assert served is not None
        depth = 2
        if isinstance(response, Wide):
            response, is_shared, is_long = response
            is_wide |= is_long
            depth = 1 if is_shared else 2
        if is_wide:
            served.throttle(self, response)
            heavy.run(partial(_written, served.write, response, self.correlation_id, depth), self._on_written)
        else:
            self.respond_chunks(served.finish(response, self))

    def _on_written(self, chunks: list[Bytes] | BaseException) -> None:
        if self.is_closed:
            return
        assert self.served is not None
        if isinstance(chunks, BaseException):
            logger.error("could not write a response to %s", self, exc_info=chunks)
            self.close()
            return
        self.served.metrics.microseconds.record((perf_counter_ns() - self.started_ns) // 1000)
        self.respond_chunks(chunks)

    def respond_chunks(self, chunks: list[Bytes]) -> None:
        if self.is_closed:
            return
        if not self.is_waiting:
            self._early = chunks
            return
        self.is_waiting = False
        self._gone = None
        self.active_at = monotonic()
        if not chunks or self._write(chunks, sum(map(len, chunks))):
            self._go_on()

    def when_gone(self, callback: Callable[[], None]) -> None:
        self._gone = callback

    # --- what keeps it from being read

    def mute(self, throttle_ms: int) -> None:
        if not self.is_closed:
            self._is_muted = self._is_held = True
            self._stop_reading()
            self._mute = self._server.node.delays.call_at_last(throttle_ms, self._unmute, "quota")

    def _unmute(self) -> None:
        self._is_muted = False
        self._mute = None
        self._resume()

    def refuse_later(self, chunks: list[Bytes], delay_s: float) -> None:
        self._gone = _nothing

        def refuse() -> None:
            if not self.is_closed:
                self._is_ending = True
                self.respond_chunks(chunks)

        self._loop.call_later(delay_s, refuse)

    def count_refusal(self, why: str) -> None:
        self._counters.malformed_requests += 1
        self._server.limited_log.warning("%s could not authenticate: %s", self, why)

    # --- what the server asks

    @property
    def is_idle(self) -> bool:
        """Whether no response is pending and no bytes are known to be unsent. Some may be queued."""
        return not self.is_waiting and not self._unsent

    # --- writing

    def _write(self, chunks: list[Bytes], size: int) -> bool:
        """Send or queue `size` bytes, and keep what the socket does not take. Return whether nothing is kept and the connection
        is still open.
        """
        if self.is_closed:
            return False
        if self._unsent:
            self._unsent += chunks
            self._hold_bytes(bytes_in_memory(chunks))
            return False
        if size < SMALL_BYTES and self._answers.ready > 1:
            return self._put(chunks, size)
        if size >= LARGE_BYTES:
            self._answers.flush()  # Others' small responses do not wait for a large one.
            if self._is_settled() and self._hand_over(chunks):
                self._hold_bytes(bytes_in_memory(chunks))
                return False
        return self._write_now(chunks, size)

    def _put(self, chunks: list[Bytes], size: int) -> bool:
        """Queue a small response."""
        self._queued = self._answers.put(self.fd, chunks, size)
        self._counters.sent_bytes += size
        return True

    def _is_settled(self) -> bool:
        """Send the responses that are queued. Return whether the socket has taken them, and the connection is still open."""
        queued, self._queued = self._queued, 0
        if queued:
            self._answers.settle(queued)
        return not self._unsent and not self.is_closed

    def _take_back(self, data: bytes) -> None:
        """Keep the rest of a queued response, because the socket did not take it."""
        self._returned_bytes += len(data)
        if not self._unsent:
            self._loop.add_writer(self.fd, self._on_writable)
        self._unsent.append(data)
        self._hold_bytes(bytes_in_memory([data]))

    def _write_now(self, chunks: list[Bytes], size: int) -> bool:
        if (self._queued and not self._is_settled()) or self._unsent:
            if not self.is_closed:
                self._unsent += chunks
                self._hold_bytes(bytes_in_memory(chunks))
            return False
        try:
            if size > SENT_AT_ONCE:
                sent = self._writev(first_part(chunks))
            elif len(chunks) == 1:
                sent = self._send(chunks[0])
            else:
                sent = self._writev(chunks if len(chunks) <= MAX_CHUNKS else chunks[:MAX_CHUNKS])
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self.close()
            return False
        self._counters.sent_bytes += sent
        if sent == size:
            return True
        self._unsent = _behind(chunks, sent)
        self._hold_bytes(bytes_in_memory(self._unsent))
        self._loop.add_writer(self.fd, self._on_writable)
        return False

    def _on_writable(self) -> None:
        if self._waits_to_send:
            return
        if self._hand_over(self._unsent):
            self._loop.remove_writer(self.fd)
        elif self._turns.must_wait:  # Thousands of clients may become writable at once.
            self._wait_to_send()
        else:
            self._send_more()

    def _hand_over(self, chunks: list[Bytes]) -> bool:
        """Have another thread send `chunks` if they are large and sending them here would delay others or wait for a disk.

        Return whether another thread sends them. If so, the caller must not register a writer with the loop.
        """
        first = first_part(chunks)
        if sum(map(len, first)) < LARGE_BYTES:
            return False
        if not self._turns.are_shared and is_in_memory(first):
            return False
        self._is_handed_over = self._server.bulk.send(self.fd, first, self._on_handed_back)
        if self._is_handed_over:
            self._unsent = chunks
        return self._is_handed_over

    def _on_handed_back(self, sent: int, error: int) -> None:
        self._is_handed_over = False
        if self.is_closed:
            self._socket.close()
        elif error:
            self.close()
        else:
            self._sent(sent)
            if self._unsent:
                self._loop.add_writer(self.fd, self._on_writable)
            else:
                self._all_is_sent()

    def _close_socket(self) -> None:
        """Close the socket, or shut it down while another thread uses it: `_on_handed_back` closes it then."""
        if self._is_handed_over:
            with suppress(OSError):  # The peer has left already.
                self._socket.shutdown(socket.SHUT_RDWR)
        else:
            self._socket.close()

    def _sent(self, size: int) -> None:
        if size:
            self.active_at = monotonic()
            again = min(size, self._returned_bytes)
            self._returned_bytes -= again
            self._counters.sent_bytes += size - again
        self._unsent = _behind(self._unsent, size)

    def _all_is_sent(self) -> None:
        self._hold_bytes(-self.held_bytes)
        if not self.is_waiting or (self._is_ending and self._gone is not None):
            self._go_on()

    def _wait_to_send(self) -> None:
        self._waits_to_send = True
        self._turns.wait(self._send_in_turn)

    def _send_in_turn(self) -> None:
        self._waits_to_send = False
        if self._unsent and self._send_more() and self._unsent and self._turns.must_wait:
            self._wait_to_send()

    def _send_more(self) -> bool:
        """Send once. Return whether the socket has taken any bytes."""
        self._answers.flush()
        unsent = self._unsent
        began = perf_counter()
        try:
            sent = self._writev(first_part(unsent))
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            self.close()
            return False
        self._sent(sent)
        self._turns.moved(sent)
        self._server.node.slices.note(perf_counter() - began)
        if not self._unsent:
            self._loop.remove_writer(self.fd)
            self._all_is_sent()
        return True

    def _hold_bytes(self, more: int) -> None:
        self.held_bytes += more
        unsent = self._server.node.unsent
        unsent.add(more)
        if more > 0 and unsent.used_bytes >= unsent.max_bytes:
            self._server.budget_used_up()


def _written(write: Callable[[Message, int], list[Bytes]], response: Message, correlation_id: int, depth: int) -> list[Bytes]:
    chunks = write(response, correlation_id)
    discard(response, depth)
    return chunks


def _nothing(*_: object) -> None:
    pass


def first_part(chunks: list[Bytes]) -> list[Bytes]:
    """Return the part of `chunks` that one turn may send, without copying."""
    size = 0
    for index, chunk in enumerate(chunks[:MAX_CHUNKS]):
        size += len(chunk)
        if size > SENT_AT_ONCE:
            return [*chunks[:index], memoryview(chunk)[: len(chunk) - size + SENT_AT_ONCE]]
    return chunks[:MAX_CHUNKS]


def _behind(chunks: list[Bytes], sent: int) -> list[Bytes]:
    """Return the part of `chunks` after the first `sent` bytes, without copying."""
    for index, chunk in enumerate(chunks):
        size = len(chunk)
        if sent < size:
            return [memoryview(chunk)[sent:], *chunks[index + 1 :]] if sent else chunks[index:]
        sent -= size
    return []
