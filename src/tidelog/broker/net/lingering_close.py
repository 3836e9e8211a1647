"""Closes a socket without losing responses that the peer has not received yet.

Closing a socket that holds unread requests resets the connection, and the peer's system then discards responses that the peer has
not read yet. So the broker first shuts down its sending side. It keeps reading and discarding until the peer's system has
acknowledged the last byte and the FIN. A request that arrives even later still causes a reset, but by then the peer's system has
all responses and the end of the stream.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import termios

LINGER_S = 0.005
"""Time between two checks, in seconds."""

READS = 64
"""The most reads per check, each of at most one scratch buffer. The bytes are discarded."""

_INT = struct.Struct("i")


def may_close(sock: socket.socket, scratch: memoryview) -> bool:
    """Shut down sending, and discard the bytes that have arrived. Return whether the peer's system has received everything, or
    the peer is gone.

    Idempotent.
    """
    try:
        sock.shutdown(socket.SHUT_WR)
        for _ in range(READS):
            if not sock.recv_into(scratch):
                return True
    except (BlockingIOError, InterruptedError):
        return not _unacknowledged_bytes(sock)
    except OSError:
        return True
    return False


def _unacknowledged_bytes(sock: socket.socket) -> int:
    try:
        return int(_INT.unpack(fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(_INT.size)))[0])
    except OSError:
        return 0
