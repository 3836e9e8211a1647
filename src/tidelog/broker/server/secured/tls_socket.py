"""A socket of TLS with the calls of a plain one that a connection makes: what would block raises BlockingIOError.

| | |
|---|---|
| `step` | one step of the handshake, on another thread: public keys take a millisecond. Nobody else uses the socket meanwhile |
| `recv_into` | fills the buffer from the records that have come; then `pending` says whether there is more to look at |
| `writev` | small chunks share a record; a write that was begun continues with the same bytes, which is how answers are kept |

OpenSSL does not see the socket: it is given whole records, a few at a time. One call of it would otherwise go on for as long as a
peer sends records that are no data (new keys, 27 bytes each, cost 40 µs), and nobody else would be served. What is bounded:

| | at most |
|---|---|
| a first message, as it is announced: OpenSSL makes room for 128 KiB of it | `MAX_HELLO_BYTES` |
| records of a handshake | `HANDSHAKE_RECORDS` |
| records of one `recv_into`: with one byte each they cost a millisecond | `RECORDS_A_TURN` |
| records without data, one after the other; usual peers send two or three | `IDLE_RECORDS` |
| answers to new keys that the peer does not take | `WRITTEN_BYTES` |

OpenSSL's memory (some ten KiB) is there from the first step on: who connects and says nothing costs none.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, cast

from tidelog.errors import ProtocolError
from tidelog.security.tls_context import ContextSource

if TYPE_CHECKING:
    from tidelog.wire.codec import Bytes

RECORD_BYTES: Final = 16_384

MAX_HELLO_BYTES: Final = 32 * 1024
"""Of a client's first message, as in Java. Usual ones have some hundred bytes, those with new kinds of keys two thousand."""

READ_BYTES: Final = 2 * (RECORD_BYTES + 256)
"""Encrypted bytes that are taken from the system at once."""

READ_AT_MOST: Final = 4 * READ_BYTES
"""The same where much is awaited. What is left of them then is a part of a record."""

WRITTEN_BYTES: Final = 2 * RECORD_BYTES
"""Bytes that are encrypted at once. OpenSSL keeps the memory for them."""

HANDSHAKE_RECORDS: Final = 256
RECORDS_A_TURN: Final = 128
RECORDS_AT_ONCE: Final = 2
"""So many are given to OpenSSL before it is asked what is in them. It keeps the memory for them."""

IDLE_RECORDS: Final = 64

_HELLO_HEADER: Final = 9
"""Bytes of a record's header, and of the message in it: a handshake's (22) first, a ClientHello (1), and their lengths."""

_HEADER: Final = 5
_MAX_LENGTH: Final = RECORD_BYTES + 2048
"""Of a record's encrypted bytes (RFC 5246)."""


class TlsSocket:
    """A connection's socket. Belongs to the loop's thread, but for `step`."""

    def __init__(self, sock: socket.socket, source: ContextSource) -> None:
        self._plain = sock
        self._source = source
        self._tls: ssl.SSLObject | None = None
        self._in = ssl.MemoryBIO()
        self._out = ssl.MemoryBIO()
        self._come = b""
        """Encrypted bytes that OpenSSL was not given yet."""
        self._position = 0
        self._unsent: memoryview | None = None
        """Encrypted bytes that the system did not take yet."""
        self._has_owed_byte = False
        """Whether the next byte that is to be written is encrypted already: see `writev`."""
        self._records = 0
        self._idle_records = 0
        self._is_shaken = False
        self.is_stepping = False
        self._is_to_be_closed = False
        self._has_failed = False
        # The system says that there is something to read once there is so much: the first step looks at it.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, _HELLO_HEADER)

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._plain.fileno()

    # --- the handshake

    def step(self) -> str | None:
        """Go on with the handshake: "read" or "write" is what it waits for, None is its end. Raises OSError, TidelogError."""
        tls = self._tls
        if tls is None:
            self._refuse_large_hello()
            self._tls = tls = self._source.get().wrap_bio(self._in, self._out, server_side=True)
        while True:
            if not self._flush():
                return "write"
            if self._is_shaken:
                return None
            try:
                tls.do_handshake()
                self._is_shaken = True
                continue
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                self._flush()  # The alert.
                raise
            if not self._flush():
                return "write"
            try:
                count = self._feed(RECORDS_AT_ONCE)
            except BlockingIOError:
                return "read"
            self._records += count
            if not count:
                self._in.write_eof()
            elif self._records > HANDSHAKE_RECORDS:
                raise ProtocolError("a handshake of TLS", found="too many records", expected=f"{HANDSHAKE_RECORDS} at most")

    def _refuse_large_hello(self) -> None:
        """Raises ProtocolError for a first message that is too large, by what it announces."""
        self._plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        try:
            start = self._plain.recv(_HELLO_HEADER, socket.MSG_PEEK)
        except BlockingIOError:
            return
        if len(start) < _HELLO_HEADER or start[0] != 22:
            return
        if int.from_bytes(start[3:5]) < _HELLO_HEADER - _HEADER:
            raise ProtocolError("a first record of TLS is too short for a message's length")
        size = int.from_bytes(start[6:9])
        if size > MAX_HELLO_BYTES:
            raise ProtocolError("a TLS client hello", found=f"{size} bytes", expected=f"{MAX_HELLO_BYTES} at most")

    def stepped(self) -> bool:
        """A step is over; whether the socket is still wanted."""
        self.is_stepping = False
        if self._is_to_be_closed:
            self._plain.close()
        return not self._is_to_be_closed

    def fail(self) -> None:
        """The handshake has failed: what is still read is not decrypted, and thrown away."""
        self._has_failed = True

    def peer_certificate(self) -> bytes | None:
        """Return the peer's certificate in DER, None without one."""
        assert self._tls is not None
        return self._tls.getpeercert(binary_form=True)

    # --- as a plain socket

    @property
    def pending(self) -> bool:
        """Whether something may be read though the system has nothing more."""
        tls = self._tls
        return tls is not None and (tls.pending() > 0 or self._in.pending > 0 or self._record_end(self._position) > 0)

    def recv_into(self, buffer: memoryview) -> int:
        """Read what has come. Raises BlockingIOError where that is nothing, OSError."""
        tls = self._tls
        if self._has_failed:
            return self._plain.recv_into(buffer)
        if tls is None or self.is_stepping:
            raise ConnectionError
        filled, size, left = 0, len(buffer), RECORDS_A_TURN
        try:
            while filled < size:
                try:
                    count = cast("int", tls.read(size - filled, buffer[filled:]))
                except ssl.SSLWantReadError:
                    if self._idle_records > IDLE_RECORDS:
                        raise ConnectionError("only records of TLS without data") from None
                    if not left:
                        break
                    count = self._feed(min(RECORDS_AT_ONCE, left), size - filled)
                    if not count:
                        return filled
                    left -= count
                    self._idle_records += count
                    continue
                if not count:
                    return filled
                filled += count
                self._idle_records = 0
        except BlockingIOError:
            pass
        except OSError:
            if not filled:
                self._flush_quietly()  # An alert, maybe.
                raise
        if self._out.pending and not self._flush() and len(self._unsent or b"") + self._out.pending > WRITTEN_BYTES:
            raise ConnectionError("answers to new keys are not taken")
        if not filled:
            raise BlockingIOError
        return filled

    def recv(self, size: int, flags: int = 0) -> bytes:
        """Look at what the system has (MSG_PEEK): whether the peer is there."""
        return self._plain.recv(size, flags)

    def send(self, chunk: Bytes) -> int:
        """Send some of a chunk. Raises BlockingIOError where nothing can be sent, OSError."""
        return self.writev([chunk])

    def writev(self, chunks: list[Bytes]) -> int:
        """Send some of the chunks. Raises BlockingIOError where nothing can be sent, OSError.

        What is encrypted and does not get away stays here. Then one byte of it is not counted as sent: the caller comes back
        with that byte and all behind it, and the rest is sent before.
        """
        tls = self._tls
        if tls is None or self.is_stepping:
            raise ConnectionError
        if not self._flush():
            raise BlockingIOError
        sent = 0
        for piece in _joined(chunks):
            left = memoryview(piece)
            if self._has_owed_byte:
                self._has_owed_byte = False
                sent += 1
                left = left[1:]
            while left:
                count = tls.write(left[:WRITTEN_BYTES])
                if not self._flush():
                    self._has_owed_byte = True
                    return sent + count - 1
                sent += count
                left = left[count:]
        return sent

    def shutdown(self, how: int) -> None:
        """End one direction, with a word to the peer: what it has sent can still be read. Raises OSError."""
        if self.is_stepping or (self._tls is None and not self._has_failed):
            raise ConnectionError
        self._say_the_end()
        self._plain.shutdown(how)

    def close(self) -> None:
        """Close it, with a word to the peer. A step on another thread comes to its end first."""
        if self.is_stepping:
            self._is_to_be_closed = True
            return
        self._say_the_end()
        self._plain.close()

    def _say_the_end(self) -> None:
        if self._tls is not None and not self._has_failed:
            with contextlib.suppress(OSError, ValueError):
                self._tls.unwrap()
            self._flush_quietly()

    def abandon(self) -> None:
        """Close a copy of the process's own: the peer notices nothing."""
        self._plain.close()

    # --- encrypted bytes

    def _flush(self) -> bool:
        """Send what is encrypted; whether all of it is sent. Raises OSError."""
        while True:
            unsent = self._unsent
            if unsent is None:
                if not self._out.pending:
                    return True
                unsent = memoryview(self._out.read())
            try:
                count = self._plain.send(unsent)
            except (BlockingIOError, InterruptedError):
                self._unsent = unsent
                return False
            self._unsent = unsent[count:] if count < len(unsent) else None

    def _flush_quietly(self) -> None:
        with contextlib.suppress(OSError):
            self._flush()

    def _feed(self, most: int, room: int = 0) -> int:
        """Give OpenSSL whole records, so many at most; return how many, 0 at the peer's end. Raises BlockingIOError, OSError.

        Where there is `room` for more bytes, more are taken from the system.
        """
        while not self._record_end(self._position):
            more = self._plain.recv(min(max(room, READ_BYTES), READ_AT_MOST))
            if not more:
                return 0
            self._come = self._come[self._position :] + more if self._position < len(self._come) else more
            self._position = 0
        end, count = self._position, 0
        while count < most and (next_end := self._record_end(end)):
            end = next_end
            count += 1
        self._in.write(memoryview(self._come)[self._position : end])
        if end == len(self._come):
            self._come, end = b"", 0
        self._position = end
        return count

    def _record_end(self, start: int) -> int:
        """Return where the record ends that begins there, 0 where it has not come yet. What is none ends with all that came."""
        come = self._come
        if len(come) - start < _HEADER:
            return 0
        length = come[start + 3] << 8 | come[start + 4]
        if not 20 <= come[start] <= 24 or come[start + 1] != 3 or length > _MAX_LENGTH:
            return len(come)  # OpenSSL says what is wrong with it.
        end = start + _HEADER + length
        return end if end <= len(come) else 0


def _joined(chunks: list[Bytes]) -> Iterator[Bytes]:
    waiting = bytearray()
    for chunk in chunks:
        if len(waiting) + len(chunk) <= RECORD_BYTES:
            waiting += chunk
            continue
        if waiting:
            yield waiting
            waiting = bytearray()
        if len(chunk) < RECORD_BYTES:
            waiting += chunk
        else:
            yield chunk
    if waiting:
        yield waiting
