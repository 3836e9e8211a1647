"""Rows of `bench.stall_bench` with administration: ACLs, quotas, users, settings, partitions of a transaction."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

from bench.broker.peers import Peer
from bench.broker.prober import exactly
from bench.broker.requests import frame
from tidelog.security.acl import Operation, PatternType, Permission, ResourceType
from tidelog.wire.codec import Message
from tidelog.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from tidelog.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest, ScramCredentialUpsertion
from tidelog.wire.messages.create_acls import AclCreation, CreateAclsRequest
from tidelog.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from tidelog.wire.messages.describe_acls import DescribeAclsRequest
from tidelog.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from tidelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

TIMEOUT_S = 900.0
AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
AT_ONCE = 2_500
"""The number of ACLs that one request creates in a preparation."""

_ANY: dict[str, Any] = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "operation": 1,
    "permission_type": 1,
}

Attack = Iterator[None]


def _ask(peer: Peer, frames: list[bytes]) -> None:
    """Send all requests at once over one connection, and read the responses."""
    with socket.create_connection(("127.0.0.1", peer.port), timeout=TIMEOUT_S) as connection:
        connection.sendall(b"".join(frames))
        for _ in frames:
            (size,) = struct.unpack(">i", exactly(connection, 4))
            exactly(connection, size)


def _created_acls(first: int, count: int) -> bytes:
    made = [
        AclCreation(ResourceType.TOPIC, f"t{i}", PatternType.LITERAL, f"User:u{i % 100}", "*", Operation.READ, Permission.ALLOW)
        for i in range(first, first + count)
    ]
    return frame(CreateAclsRequest(creations=made), 2)


def _create_acls(peer: Peer, count: int) -> None:
    for first in range(0, count, AT_ONCE):
        _ask(peer, [_created_acls(first, min(AT_ONCE, count - first))])


def acls_created(count: int) -> Callable[[Peer, float], Attack]:
    def attack(peer: Peer, scale: float) -> Attack:
        sent = _created_acls(0, max(1, int(count * scale)))
        yield
        _ask(peer, [sent])

    return attack


def acls_described(count: int, pipelined: int) -> Callable[[Peer, float], Attack]:
    def attack(peer: Peer, scale: float) -> Attack:
        _create_acls(peer, max(1, int(count * scale)))
        yield
        _ask(peer, [frame(DescribeAclsRequest(**_ANY), 2)] * pipelined)

    return attack


def acls_deleted(count: int) -> Callable[[Peer, float], Attack]:
    def attack(peer: Peer, scale: float) -> Attack:
        _create_acls(peer, max(1, int(count * scale)))
        yield
        _ask(peer, [frame(DeleteAclsRequest(filters=[DeleteAclsFilter(**_ANY)]), 2)])

    return attack


def _quotas(count: int) -> Message:
    ops = [OpData("producer_byte_rate", 1_000_000.0, remove=False)]
    return AlterClientQuotasRequest(entries=[EntryData([EntityData("client-id", f"c{i}")], ops) for i in range(count)])


def _users(count: int) -> Message:
    made = [
        ScramCredentialUpsertion(name=f"u{i}", mechanism=1, iterations=16_384, salt=b"salt", salted_password=bytes(32))
        for i in range(count)
    ]
    return AlterUserScramCredentialsRequest(upsertions=made)


def _settings(count: int) -> Message:
    made = [AlterConfigsResource(2, f"no-{i}", [AlterableConfig("retention.ms", 0, str(1000 + i))]) for i in range(count)]
    return IncrementalAlterConfigsRequest(resources=made)


_MADE: dict[str, tuple[Callable[[int], Message], int]] = {
    "quotas": (_quotas, 1),
    "users": (_users, 0),
    "settings": (_settings, 1),
}


def altered(kind: str, count: int) -> Callable[[Peer, float], Attack]:
    """One request that changes this many quotas, users, or settings of unknown topics."""
    make, version = _MADE[kind]

    def attack(peer: Peer, scale: float) -> Attack:
        sent = frame(make(max(1, int(count * scale))), version)
        yield
        _ask(peer, [sent])

    return attack


def partitions_described(
    create: Callable[[Peer, list[str], int], None], count: int, pipelined: int
) -> Callable[[Peer, float], Attack]:
    def attack(peer: Peer, scale: float) -> Attack:
        create(peer, ["many"], max(1, int(count * scale)))
        asked = DescribeTopicPartitionsRequest(topics=[TopicRequest("many")], response_partition_limit=2000)
        yield
        _ask(peer, [frame(asked, 0)] * pipelined)

    return attack
