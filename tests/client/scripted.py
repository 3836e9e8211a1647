"""Brokers that answer what a test says them to, over real sockets: leaders that move, answers that never come, nonsense.

    with ScriptedBroker(answer) as broker: ...

`answer(request, version)` returns the response; bytes to be sent instead of one (a bytearray: after which the connection
ends); `CLOSE` to end the connection without a word; or None for silence. ApiVersions is answered from `VERSIONS` unless
`answer` does it.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from tidelog.wire.codec import Message, decode
from tidelog.wire.headers import read_request_header, response_chunks
from tidelog.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.messages.describe_groups import DescribeGroupsRequest
from tidelog.wire.messages.fetch import FetchRequest
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest
from tidelog.wire.messages.list_groups import ListGroupsRequest
from tidelog.wire.messages.list_offsets import ListOffsetsRequest
from tidelog.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tidelog.wire.messages.offset_commit import OffsetCommitRequest
from tidelog.wire.messages.offset_fetch import OffsetFetchRequest
from tidelog.wire.messages.produce import ProduceRequest

VERSIONS: dict[type[Message], int] = {
    MetadataRequest: 12,
    ListOffsetsRequest: 7,
    FetchRequest: 12,
    ProduceRequest: 9,
    InitProducerIdRequest: 4,
    ApiVersionsRequest: 3,
    FindCoordinatorRequest: 4,
    ListGroupsRequest: 4,
    DescribeGroupsRequest: 5,
    OffsetFetchRequest: 8,
    OffsetCommitRequest: 8,
}
CLOSE = object()

Answer = Callable[[Any, int], Any]


class ScriptedBroker:
    """See the module. `asked` lists the requests but for ApiVersions, `connections` counts."""

    def __init__(self, answer: Answer, versions: dict[type[Message], int] | None = None) -> None:
        self.answer = answer
        self.versions = VERSIONS if versions is None else versions
        self._requests = {cls.API_KEY: cls for cls in VERSIONS | self.versions}
        self.asked: list[Any] = []
        self.connections = 0
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while True:
                (size,) = struct.unpack(">i", _exactly(connection, 4))
                if size > 100 << 20:
                    return  # A greeting of TLS, taken for a size: Kafka refuses it at once, too.
                frame = _exactly(connection, size)
                header, position = read_request_header(frame)
                if header.api_key not in self._requests:
                    return  # SaslHandshake: what a lost connection's port wants.
                request: Any = decode(self._requests[header.api_key], header.api_version, frame, position)
                answer = None
                if isinstance(request, ApiVersionsRequest):
                    answer = self._versions()
                else:
                    self.asked.append(request)
                found = self.answer(request, header.api_version)
                answer = answer if found is None else found
                if answer is CLOSE:
                    return
                if isinstance(answer, bytes | bytearray):
                    connection.sendall(answer)
                    if isinstance(answer, bytearray):
                        return
                elif answer is not None:
                    connection.sendall(b"".join(response_chunks(answer, header.api_version, header.correlation_id)))

    def _versions(self) -> ApiVersionsResponse:
        return ApiVersionsResponse(
            api_keys=[ApiVersion(api_key=cls.API_KEY, min_version=0, max_version=newest) for cls, newest in self.versions.items()]
        )


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise ConnectionError
        data += piece
    return data


def metadata(
    brokers: dict[int, ScriptedBroker], leaders: dict[int, int], *, epoch: int = 0, error_code: int = 0
) -> MetadataResponse:
    """Return metadata of one topic `t`: partition → leader's node id, -1 for none."""
    partitions = [
        MetadataResponsePartition(partition_index=number, leader_id=leader, leader_epoch=epoch, replica_nodes=[1], isr_nodes=[1])
        for number, leader in leaders.items()
    ]
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=node, host="127.0.0.1", port=broker.port) for node, broker in brokers.items()],
        topics=[MetadataResponseTopic(error_code=error_code, name="t", partitions=partitions)],
    )
