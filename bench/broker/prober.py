"""A well-behaved client: it sends one small request every few milliseconds, and measures the response times.

    python -m bench.broker.prober PORT FRAME_HEX    until stdin ends; then prints the figures as one JSON line

It is a separate process, so that the benchmark's work does not delay it.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import sys
import time

EVERY_S = 0.005
MAX_S = 900.0
"""A response that takes longer ends the measurement."""


def exactly(connection: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    have = 0
    while have < size:
        got = connection.recv_into(view[have:])
        if not got:
            raise ConnectionError("closed by the broker")
        have += got
    return data


def answer_to(connection: socket.socket, frame: bytes) -> bytearray:
    """Send a request; return its response without the size."""
    connection.sendall(frame)
    (size,) = struct.unpack(">i", exactly(connection, 4))
    return exactly(connection, size)


def main() -> int:
    port, frame = int(sys.argv[1]), bytes.fromhex(sys.argv[2])
    took = []
    with socket.create_connection(("127.0.0.1", port), timeout=MAX_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(100):
            answer_to(connection, frame)
        print("ready", flush=True)
        while True:
            began = time.perf_counter()
            answer_to(connection, frame)
            lasted = time.perf_counter() - began
            took.append(lasted)
            if select.select([sys.stdin], [], [], max(0.0, EVERY_S - lasted))[0]:
                break
    took.sort()
    figures = {"longest_ms": took[-1] * 1000, "p50_ms": took[len(took) // 2] * 1000, "samples": len(took)}
    print(json.dumps(figures), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
