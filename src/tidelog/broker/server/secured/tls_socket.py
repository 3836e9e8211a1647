"""A socket of TLS with the calls of a plain one that a connection makes: what would block raises BlockingIOError.

| | |
|---|---|
| `step` | one step of the handshake, on another thread: public keys take a millisecond. Nobody else uses the socket meanwhile |
| `recv_into` | fills the buffer from as many records as have come; then `pending` says whether more is decrypted already |
| `writev` | small chunks share a record; a write that was begun continues with the same bytes, which is how answers are kept |

OpenSSL's memory (some ten KiB) is there from the first step on: who connects and says nothing costs none. It makes room for a
message as long as announced, 128 KiB at most: a first message above `MAX_HELLO_BYTES` is refused before.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tidelog.errors import ProtocolError
from tidelog.security.tls_context import ContextSource

if TYPE_CHECKING:
    from tidelog.wire.codec import Bytes

RECORD_BYTES: Final = 16_384

MAX_HELLO_BYTES: Final = 32 * 1024
"""Of a client's first message, as in Java. Usual ones have some hundred bytes, those with new kinds of keys two thousand."""

_HELLO_HEADER: Final = 9
"""Bytes of a record's header, and of the message in it: a handshake's (22) first, a ClientHello (1), and their lengths."""


class TlsSocket:
    """A connection's socket. Belongs to the loop's thread, but for `step`."""

    def __init__(self, sock: socket.socket, source: ContextSource) -> None:
        self._plain: socket.socket = sock
        self._source = source
        self._tls: ssl.SSLSocket | None = None
        self._fd = sock.fileno()
        self._is_full = False
        self.is_stepping = False
        self._is_to_be_closed = False
        self._has_failed = False
        # The system says that there is something to read once there is so much: the first step looks at it.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, _HELLO_HEADER)

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._fd

    # --- the handshake

    def step(self) -> str | None:
        """Go on with the handshake: "read" or "write" is what it waits for, None is its end. Raises OSError, TidelogError."""
        if self._tls is None:
            self._refuse_large_hello()
            context = self._source.get()
            self._plain = self._tls = context.wrap_socket(self._plain, server_side=True, do_handshake_on_connect=False)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return "read"
        except ssl.SSLWantWriteError:
            return "write"
        return None

    def _refuse_large_hello(self) -> None:
        """Raises ProtocolError for a first message that is too large, by what it announces."""
        self._plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        try:
            start = self._plain.recv(_HELLO_HEADER, socket.MSG_PEEK)
        except BlockingIOError:
            return
        size = int.from_bytes(start[6:9])
        if len(start) == _HELLO_HEADER and start[0] == 22 and size > MAX_HELLO_BYTES:
            raise ProtocolError("a first message of TLS", found=f"{size} bytes", expected=f"{MAX_HELLO_BYTES} at most")

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
        return self._tls is not None and (self._is_full or self._tls.pending() > 0)

    def recv_into(self, buffer: memoryview) -> int:
        """Read what has come. Raises BlockingIOError where that is nothing, OSError."""
        tls = self._tls
        if self._has_failed:
            return socket.socket.recv_into(self._plain, buffer)
        if tls is None or self.is_stepping:
            raise ConnectionError
        self._is_full = False
        filled, size = 0, len(buffer)
        while filled < size:
            try:
                count = tls.recv_into(buffer[filled:])
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                if not filled:
                    raise BlockingIOError from None
                return filled
            except OSError:
                if not filled:
                    raise
                return filled
            if not count:
                return filled
            filled += count
        self._is_full = True
        return filled

    def recv(self, size: int, flags: int = 0) -> bytes:
        """Look at what the system has (MSG_PEEK): whether the peer is there."""
        return socket.socket.recv(self._plain, size, flags)

    def send(self, chunk: Bytes) -> int:
        """Send some of a chunk. Raises BlockingIOError where nothing can be sent, OSError."""
        return self.writev([chunk])

    def writev(self, chunks: list[Bytes]) -> int:
        """Send some of the chunks. Raises BlockingIOError where nothing can be sent, OSError."""
        tls = self._tls
        if tls is None or self.is_stepping:
            raise ConnectionError
        sent = 0
        for piece in _joined(chunks):
            left = memoryview(piece)
            while left:
                try:
                    count = tls.send(left)
                except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                    if not sent:
                        raise BlockingIOError from None
                    return sent
                sent += count
                left = left[count:]
        return sent

    def shutdown(self, how: int) -> None:
        """End one direction, with a word to the peer: what it has sent can still be read. Raises OSError."""
        if self.is_stepping or (self._tls is None and not self._has_failed):
            raise ConnectionError
        self._say_the_end()
        socket.socket.shutdown(self._plain, how)

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

    def abandon(self) -> None:
        """Close a copy of the process's own: the peer notices nothing."""
        self._plain.close()


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
