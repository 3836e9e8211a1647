"""When a socket can be closed without taking answers along that are still on their way.

A socket that is closed while requests lie unread in it is reset, and the peer's system throws away what it has not handed out
yet. So the side that closes says first that it sends no more, and continues reading and discarding until the peer's system has
acknowledged the last byte and that end. A request that comes even later then resets nothing that the peer would notice: it reads
all answers and the end.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import termios

LINGER_S = 0.005
"""Time until it is checked again."""

READS = 64
"""How often what still comes is thrown away in one go, a scratch buffer at most each time."""

_INT = struct.Struct("i")


def may_close(sock: socket.socket, scratch: memoryview) -> bool:
    """Send no more, throw away what has come; whether the peer's system has all that was sent, or the peer is gone.

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
