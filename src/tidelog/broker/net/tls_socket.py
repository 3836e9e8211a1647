"""A TLS socket with the interface of a plain non-blocking one: a call that would block raises BlockingIOError.

| | |
|---|---|
| `step` | one step of the handshake, on another thread (about a millisecond), which is the socket's only user during the step |
| `recv_into` | fills the buffer from the TLS records that have arrived; `pending` tells whether more data is left |
| `sealed` | encrypts small chunks, and leaves the sending to the caller |
| `writev` | puts small chunks into one TLS record; a partial write must continue with the same bytes, as unsent responses do |

OpenSSL does not read the socket: this class hands it whole records, a few at a time. Otherwise one call could run for as long as
a peer sends records without data (a key update has 27 bytes and costs 40 µs), and no other client would be served. The limits:

| limit of | name |
|---|---|
| the announced size of the first message, for which OpenSSL would allocate up to 128 KiB | `MAX_HELLO_BYTES` |
| records of a handshake | `HANDSHAKE_RECORDS` |
| records of one `recv_into`, which take a millisecond if each has one byte | `RECORDS_A_TURN` |
| consecutive records without data; normal peers send two or three | `IDLE_RECORDS` |
| bytes of replies to key updates that the peer does not read | `WRITTEN_BYTES` |

OpenSSL's memory (some ten KiB) is allocated at the first step, so a client that connects and sends nothing costs none.
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
"""The largest first message of a client, as in Java. Usual messages have a few hundred bytes; newer key types need two thousand.
"""

READ_BYTES: Final = 2 * (RECORD_BYTES + 256)
"""The most encrypted bytes that one read takes from the socket."""

READ_AT_MOST: Final = 4 * READ_BYTES
"""The most encrypted bytes that one read takes from the socket if a lot of data is expected. At most part of a record is left in
the socket.
"""

WRITTEN_BYTES: Final = 2 * RECORD_BYTES
"""The most bytes that are encrypted at once. OpenSSL keeps the memory for them."""

HANDSHAKE_RECORDS: Final = 256
RECORDS_A_TURN: Final = 128
RECORDS_AT_ONCE: Final = 2
"""The most records handed to OpenSSL before their data is read. OpenSSL keeps the memory for them."""

IDLE_RECORDS: Final = 64

_HELLO_HEADER: Final = 9
"""The size of a record's header plus that of its first message. They show whether it is a ClientHello (22, 1), and its length."""

_HEADER: Final = 5
_MAX_LENGTH: Final = RECORD_BYTES + 2048
"""The most encrypted bytes in a record (RFC 5246)."""


class TlsSocket:
    """The TLS socket of one connection. Use only on the event loop's thread, except for `step`."""

    def __init__(self, sock: socket.socket, source: ContextSource) -> None:
        self._plain = sock
        self._source = source
        self._tls: ssl.SSLObject | None = None
        self._in = ssl.MemoryBIO()
        self._out = ssl.MemoryBIO()
        self._come = b""
        """Encrypted bytes that have not been passed to OpenSSL yet."""
        self._position = 0
        self._unsent: memoryview | None = None
        """Encrypted bytes that the socket has not taken yet."""
        self._has_owed_byte = False
        """Whether the next byte to write is already encrypted: see `writev`."""
        self._records = 0
        self._idle_records = 0
        self._is_shaken = False
        self.is_stepping = False
        self._is_to_be_closed = False
        self._has_failed = False
        # The kernel reports the socket as readable once this many bytes have arrived, because the first step needs them.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, _HELLO_HEADER)

    def fileno(self) -> int:
        """Return the file descriptor."""
        return self._plain.fileno()

    # --- the handshake

    def step(self) -> str | None:
        """Continue the handshake. Return None when it is done; otherwise return what the handshake waits for, "read" or "write".
        Raises OSError, TidelogError.
        """
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
                self._flush()  # Sends the alert.
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
                raise ProtocolError(
                    "the TLS handshake has too many records", found=self._records, expected=f"{HANDSHAKE_RECORDS} at most"
                )

    def _refuse_large_hello(self) -> None:
        """Raise ProtocolError if the first message announces a size above the limit."""
        self._plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        try:
            start = self._plain.recv(_HELLO_HEADER, socket.MSG_PEEK)
        except BlockingIOError:
            return
        if len(start) < _HELLO_HEADER or start[0] != 22:
            return
        if int.from_bytes(start[3:5]) < _HELLO_HEADER - _HEADER:
            raise ProtocolError("the first TLS record is too short to hold a message length")
        size = int.from_bytes(start[6:9])
        if size > MAX_HELLO_BYTES:
            raise ProtocolError("the TLS client hello is too large", found=f"{size} bytes", expected=f"{MAX_HELLO_BYTES} at most")

    def stepped(self) -> bool:
        """End a step. If the socket was closed during the step, close it now; return whether it is still open."""
        self.is_stepping = False
        if self._is_to_be_closed:
            self._plain.close()
        return not self._is_to_be_closed

    def fail(self) -> None:
        """Mark the handshake as failed: bytes that still arrive are discarded, not decrypted."""
        self._has_failed = True

    def peer_certificate(self) -> bytes | None:
        """Return the peer's certificate in DER, or None if the peer has sent none."""
        assert self._tls is not None
        return self._tls.getpeercert(binary_form=True)

    # --- as a plain socket

    @property
    def pending(self) -> bool:
        """Whether bytes can be read even though the system's socket has none."""
        tls = self._tls
        return tls is not None and (tls.pending() > 0 or self._in.pending > 0 or self._record_end(self._position) > 0)

    def recv_into(self, buffer: memoryview) -> int:
        """Read the decrypted bytes that have arrived. Raises BlockingIOError if there are none, OSError on failure."""
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
                        raise ConnectionError("the peer sent too many empty TLS records in a row") from None
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
                self._flush_quietly()  # The pending bytes may be an alert.
                raise
        if self._out.pending and not self._flush() and len(self._unsent or b"") + self._out.pending > WRITTEN_BYTES:
            raise ConnectionError("the peer does not read responses to its key updates")
        if not filled:
            raise BlockingIOError
        return filled

    def recv(self, size: int, flags: int = 0) -> bytes:
        """Peek at the socket (MSG_PEEK) to see whether the peer is still there."""
        return self._plain.recv(size, flags)

    def send(self, chunk: Bytes) -> int:
        """Send part of a chunk, and return the number of bytes. Raises BlockingIOError if nothing can be sent, OSError if the
        connection fails.
        """
        return self.writev([chunk])

    def writev(self, chunks: list[Bytes]) -> int:
        """Send part of the chunks, and return the number of bytes. Raises BlockingIOError if nothing can be sent, OSError if the
        connection fails.

        Encrypted bytes that the socket does not take are kept. In this case the last byte is reported as unsent. The caller
        then calls again with that byte and all bytes that follow, and the kept bytes are sent first.
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

    def sealed(self, chunks: list[Bytes]) -> bytes | None:
        """Encrypt the chunks, and return the bytes, which the caller must send before any other call. Return None if the socket
        has not taken all earlier bytes, or has failed: then use `writev`.
        """
        tls = self._tls
        if tls is None or self.is_stepping or self._unsent is not None or self._out.pending or self._has_owed_byte:
            return None
        tls.write(b"".join(chunks))
        return self._out.read()

    def keep_sealed(self, data: bytes) -> None:
        """Keep encrypted bytes that the socket did not take. The next `writev` sends them first."""
        self._unsent = memoryview(bytes(self._unsent or b"") + data)

    def shutdown(self, how: int) -> None:
        """Shut down one direction, and notify the peer. Bytes that the peer has sent can still be read. Raises OSError on
        failure.
        """
        if self.is_stepping or (self._tls is None and not self._has_failed):
            raise ConnectionError
        self._say_the_end()
        self._plain.shutdown(how)

    def close(self) -> None:
        """Close the socket, and notify the peer. If a step is running on another thread, it finishes first."""
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
        """Close this process's copy of the socket after a fork. The peer is not notified."""
        self._plain.close()

    # --- encrypted bytes

    def _flush(self) -> bool:
        """Send the encrypted bytes, and return whether all have been sent. Raises OSError if the connection fails."""
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
        """Pass at most `most` complete records to OpenSSL, and return their number; 0 if the peer has closed its side.

        Raises BlockingIOError, OSError. With a larger `room` for decrypted bytes, one call reads more from the socket.
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
        """Return the end of the record at `start`, or 0 if the record is incomplete. If the bytes are not a record, return the
        end of the received bytes.
        """
        come = self._come
        if len(come) - start < _HEADER:
            return 0
        length = come[start + 3] << 8 | come[start + 4]
        if not 20 <= come[start] <= 24 or come[start + 1] != 3 or length > _MAX_LENGTH:
            return len(come)  # OpenSSL reports the error.
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
