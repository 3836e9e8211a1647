"""Rows of `bench.stall_bench` with very many simultaneous fetches, and with small batches that decompress to large ones."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

from bench.broker.peers import Peer
from bench.broker.prober import exactly
from bench.broker.requests import FETCH_VERSION, FIRST_MS, LIST_OFFSETS_VERSION, frame, list_offsets_request, produce_request
from tidelog.records.batch import CREATE_TIME
from tidelog.records.builder import build_batch_v2
from tidelog.records.compression import Codec
from tidelog.records.records import Record
from tidelog.wire.headers import read_response
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

TIMEOUT_S = 300.0
SESSIONS = {"max.incremental.fetch.session.cache.slots": "2000"}
WAIT_MS = 500
ROUNDS = 3

Attack = Iterator[None]
Create = Callable[[Peer, list[str], int], None]


def _received(connection: socket.socket) -> memoryview:
    (size,) = struct.unpack(">i", exactly(connection, 4))
    return memoryview(exactly(connection, size))


def sessions(create: Create, count: int, partitions: int) -> Callable[[Peer, float], Attack]:
    """Consumers of many idle partitions: all start their sessions at once, and then fetch and wait together."""

    def attack(peer: Peer, scale: float) -> Attack:
        wanted = max(1, int(partitions * scale))
        create(peer, ["many"], wanted)
        named = [FetchPartition(partition=i, fetch_offset=0, partition_max_bytes=1 << 20) for i in range(wanted)]

        def asked(session_id: int, epoch: int) -> bytes:
            topics = [] if epoch else [FetchTopic(topic="many", partitions=named)]
            wait_ms = WAIT_MS if epoch else 0
            request = FetchRequest(
                replica_id=-1,
                max_wait_ms=wait_ms,
                min_bytes=1,
                max_bytes=50 << 20,
                session_id=session_id,
                session_epoch=epoch,
                topics=topics,
            )
            return frame(request, FETCH_VERSION)

        with ExitStack() as stack:
            connections = [
                stack.enter_context(socket.create_connection(("127.0.0.1", peer.port), timeout=TIMEOUT_S))
                for _ in range(max(1, int(count * scale)))
            ]
            first = asked(0, 0)
            yield
            for connection in connections:
                connection.sendall(first)
            ids = [read_response(FetchResponse, FETCH_VERSION, _received(one))[1].session_id for one in connections]
            for epoch in range(1, ROUNDS + 1):
                for connection, session_id in zip(connections, ids, strict=True):
                    connection.sendall(asked(session_id, epoch))
                for connection in connections:
                    _received(connection)
        time.sleep(1)

    return attack


def searches(create: Create, partitions: int, unpacked_mb: int) -> Callable[[Peer, float], Attack]:
    """One ListOffsets request by time over many partitions, each with a batch that decompresses to this size."""

    def attack(peer: Peer, scale: float) -> Attack:
        count = max(1, int(partitions * scale))
        create(peer, ["searched"], count)
        made = [Record(i, FIRST_MS + i, CREATE_TIME, None, bytes(100_000)) for i in range(unpacked_mb * 10)]
        batch = bytes(build_batch_v2(made, codec=Codec.GZIP))
        with socket.create_connection(("127.0.0.1", peer.port), timeout=TIMEOUT_S) as connection:
            for partition in range(count):
                connection.sendall(frame(produce_request("searched", batch, partition, acks=1), 9))
                _received(connection)
            late = dict.fromkeys(range(count), FIRST_MS + unpacked_mb * 9)
            sent = frame(list_offsets_request("searched", late), LIST_OFFSETS_VERSION)
            yield
            connection.sendall(sent)
            _received(connection)

    return attack
