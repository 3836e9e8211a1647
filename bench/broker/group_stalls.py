"""Rows of `bench.stall_bench` with large groups or large group metadata, and with large requests that are never completed."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

from bench.broker.peers import Peer
from bench.broker.prober import exactly
from bench.broker.requests import frame
from tidelog.wire.codec import Message
from tidelog.wire.headers import read_response
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

GROUP = "stalling"
TIMEOUT_S = 120.0
TIMEOUT_MS = 300_000
JOIN_VERSION, SYNC_VERSION, COMMIT_VERSION = 3, 2, 7
ANNOUNCED_BYTES = 100 << 20
GATHERED = {"group.initial.rebalance.delay.ms": "3000"}

Attack = Iterator[None]


def _connected(stack: ExitStack, peer: Peer) -> socket.socket:
    return stack.enter_context(socket.create_connection(("127.0.0.1", peer.port), timeout=TIMEOUT_S))


def _send(connection: socket.socket, message: Message, version: int) -> None:
    connection.sendall(frame(message, version))


def _received(connection: socket.socket) -> memoryview:
    (size,) = struct.unpack(">i", exactly(connection, 4))
    return memoryview(exactly(connection, size))


def _commit(topic: str, partitions: int, metadata: str = "") -> OffsetCommitRequest:
    asked = [
        OffsetCommitRequestPartition(partition_index=i, committed_offset=0, committed_metadata=metadata)
        for i in range(partitions)
    ]
    return OffsetCommitRequest(group_id=GROUP, topics=[OffsetCommitRequestTopic(name=topic, partitions=asked)])


def _await_coordinator(peer: Peer, connection: socket.socket) -> None:
    """Wait until offsets can be committed."""
    peer.create_topic("committed")
    until = time.monotonic() + TIMEOUT_S
    while time.monotonic() < until:
        _send(connection, FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]), 4)
        found = read_response(FindCoordinatorResponse, 4, _received(connection))[1]
        if not found.coordinators[0].error_code:
            _send(connection, _commit("committed", 1), COMMIT_VERSION)
            answer = read_response(OffsetCommitResponse, COMMIT_VERSION, _received(connection))[1]
            if not answer.topics[0].partitions[0].error_code:
                return
        time.sleep(0.2)
    raise RuntimeError(f"{peer.name} has no coordinator")


def joins(members: int, said_bytes: int) -> Callable[[Peer, float], Attack]:
    """A group of many members joins; its leader sends each member an assignment as large as the member's metadata."""

    def attack(peer: Peer, scale: float) -> Attack:
        said = bytes(said_bytes)
        with ExitStack() as stack:
            _await_coordinator(peer, _connected(stack, peer))
            connections = [_connected(stack, peer) for _ in range(max(2, int(members * scale)))]
            join = JoinGroupRequest(
                group_id=f"{GROUP}-members",
                session_timeout_ms=TIMEOUT_MS,
                rebalance_timeout_ms=TIMEOUT_MS,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=said)],
            )
            yield
            for connection in connections:
                _send(connection, join, JOIN_VERSION)
            joined = [read_response(JoinGroupResponse, JOIN_VERSION, _received(one))[1] for one in connections]
            for connection, one in sorted(zip(connections, joined, strict=True), key=lambda pair: bool(pair[1].members)):
                sync = SyncGroupRequest(
                    group_id=f"{GROUP}-members",
                    generation_id=one.generation_id,
                    member_id=one.member_id,
                    assignments=[SyncGroupRequestAssignment(member_id=each.member_id, assignment=said) for each in one.members],
                )
                _send(connection, sync, SYNC_VERSION)
            for connection in connections:
                _received(connection)

    return attack


def commits(partitions: int, metadata_bytes: int) -> Callable[[Peer, float], Attack]:
    """One commit of many offsets with the largest allowed metadata."""

    def attack(peer: Peer, scale: float) -> Attack:
        with ExitStack() as stack:
            connection = _connected(stack, peer)
            _await_coordinator(peer, connection)
            message = _commit("committed", max(1, int(partitions * scale)), "x" * metadata_bytes)
            yield
            _send(connection, message, COMMIT_VERSION)
            _received(connection)

    return attack


def announcements(connections: int, sent_bytes: int) -> Callable[[Peer, float], Attack]:
    """Many connections begin a request of the largest allowed size, and send nothing more."""

    def attack(peer: Peer, scale: float) -> Attack:
        begun = struct.pack(">i", ANNOUNCED_BYTES) + bytes(sent_bytes)
        with ExitStack() as stack:
            opened = [_connected(stack, peer) for _ in range(max(1, int(connections * scale)))]
            yield
            for connection in opened:
                connection.sendall(begun)
            time.sleep(1)

    return attack
