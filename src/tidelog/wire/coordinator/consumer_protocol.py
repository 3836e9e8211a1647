"""The messages that members of groups of type "consumer" exchange through the coordinator.

| version | added |
|---|---|
| 1 | the partitions that a member still owns, for cooperative rebalances (KIP-429) |
| 2 | the generation in which these partitions were assigned (KIP-792) |
| 3 | the member's rack (KIP-881) |

Versions only add fields at the end. So a newer version is decoded as the newest version here, as in Kafka's clients and
coordinator.
"""

from __future__ import annotations

from typing import TypeVar

from tidelog.errors import ProtocolError
from tidelog.wire.codec import Bytes, decoder
from tidelog.wire.coordinator.versioned import version_of
from tidelog.wire.fields import Message, Struct, array, data, int32, string

PROTOCOL_TYPE = "consumer"

M = TypeVar("M", bound=Message)


class AssignedTopic(Struct):
    topic: str = string()
    partitions: list[int] = array(int32)


class ConsumerProtocolSubscription(Message, versions="0-3"):
    topics: list[str] = array(string)
    user_data: bytes | None = data(nullable="0+", default=None)
    owned_partitions: list[AssignedTopic] = array(AssignedTopic, "1+")
    generation_id: int = int32("2+", default=-1)
    rack_id: str | None = string("3+", nullable="3+", default=None)


class ConsumerProtocolAssignment(Message, versions="0-3"):
    assigned_partitions: list[AssignedTopic] = array(AssignedTopic)
    user_data: bytes | None = data(nullable="0+", default=None)


def read_subscription(data: Bytes) -> ConsumerProtocolSubscription:
    """Decode a member's subscription. Raises ProtocolError for invalid bytes."""
    return _read(ConsumerProtocolSubscription, data)


def read_assignment(data: Bytes) -> ConsumerProtocolAssignment:
    """Decode a member's assignment. Raises ProtocolError for invalid bytes, and for empty bytes."""
    return _read(ConsumerProtocolAssignment, data)


def _read(cls: type[M], data: Bytes) -> M:
    version = version_of(data)
    if version < 0:
        raise ProtocolError(f"{cls.__name__} has a negative version", found=version)
    return decoder(cls, min(version, cls.VERSIONS[-1]), exact=False)(data, 2)
