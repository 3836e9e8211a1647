"""A client that sends what it is told to, and nothing by itself: no metadata, no retries, no version negotiation.

    with RawClient(("127.0.0.1", port)) as client:
        response = client.ask(MetadataRequest(topics=[]), 9)

Several requests may be sent before their answers are read: `send` and `receive`. What is no request at all: `send_bytes`.
"""

from __future__ import annotations

import socket
import struct
from importlib import import_module
from types import TracebackType
from typing import Any, Self

from tests.patience import PATIENCE_S
from tidelog.wire.codec import Bytes, Message
from tidelog.wire.headers import read_response, request_chunks


class RawClient:
    """One connection. `timeout_s` bounds each call."""

    def __init__(self, address: tuple[str, int], *, client_id: str | None = "raw", timeout_s: float = PATIENCE_S) -> None:
        self.client_id = client_id
        self.socket = socket.create_connection(address, timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0
        self._asked: list[tuple[int, type[Message], int]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def ask(self, message: Message, version: int) -> Any:
        """Send a request and return its response."""
        self.send(message, version)
        return self.receive()

    def send(self, message: Message, version: int) -> int:
        """Send a request, and return its correlation id; its response is `receive`'s, unless it has none."""
        self._correlation_id += 1
        self.send_bytes(b"".join(request_chunks(message, version, self._correlation_id, self.client_id)))
        self._asked.append((self._correlation_id, response_class(message), version))
        return self._correlation_id

    def forget(self) -> None:
        """The last request gets no response."""
        self._asked.pop()

    def receive(self) -> Any:
        """Return the response to the oldest request that has none yet."""
        expected, cls, version = self._asked.pop(0)
        correlation_id, message = read_response(cls, version, self.receive_frame())
        assert correlation_id == expected
        return message

    def receive_frame(self) -> bytes:
        """Return the next frame, without its size."""
        (size,) = struct.unpack(">i", self._read(4))
        return self._read(size)

    def send_bytes(self, data: Bytes) -> None:
        self.socket.sendall(data)

    def closed(self) -> bool:
        """Wait until the broker has closed the connection; False if it sends something instead."""
        try:
            return not self.socket.recv(1)
        except ConnectionError:
            return True

    def _read(self, size: int) -> bytes:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            received = self.socket.recv_into(view)
            if not received:
                raise ConnectionError("the broker closed the connection")
            view = view[received:]
        return bytes(data)


def response_class(message: Message) -> type[Message]:
    """Return the class that answers a request: it stands in the same module, under the same name."""
    cls = type(message)
    response: type[Message] = getattr(import_module(cls.__module__), cls.__name__.removesuffix("Request") + "Response")
    return response
