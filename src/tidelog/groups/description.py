"""A group's description as plain tuples. Descriptions from a coordinator and from the log have the same form."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

from tidelog.errors import TidelogError
from tidelog.groups.group_table import StoredGroup
from tidelog.groups.modern_groups import CLASSIC, ModernMember
from tidelog.model import TopicPartition
from tidelog.records.compression import Bytes
from tidelog.wire.coordinator.consumer_protocol import PROTOCOL_TYPE, read_assignment

EMPTY = "Empty"
STABLE = "Stable"
UNKNOWN = "Unknown"
DEAD = "Dead"
"""The state of a deleted group. It is also reported for a group that does not exist."""


class GroupListing(NamedTuple):
    """A group as its coordinator lists it. `state` is None before Kafka 2.6; `coordinator` is a broker's `host:port`."""

    group: str
    state: str | None
    protocol_type: str
    """`consumer`; empty for a group that only commits offsets."""
    coordinator: str | None
    type: str | None = CLASSIC
    """`classic`, `consumer`, `share` or `streams`; None from a broker before Kafka 3.7."""


class GroupMember(NamedTuple):
    """A member and its assigned partitions. These are None if the assignment is not in the consumer protocol's format."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    assignment: tuple[TopicPartition, ...] | None


class GroupDescription(NamedTuple):
    """A group and its members; `state` is Kafka's name of the state."""

    group: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: str | None
    members: tuple[GroupMember, ...]
    type: str = CLASSIC
    """`classic`, `consumer`, `share` or `streams`."""

    @property
    def member_count(self) -> int | None:
        """The number of members; None if it is unknown, as for streams groups described by brokers."""
        return len(self.members) if self.members or self.state in (EMPTY, DEAD) else None


class WireMember(Protocol):
    """A member, with the fields that both a coordinator's response and a group's record have."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str


def dead(group: str) -> GroupDescription:
    """Return the description of a group that does not exist."""
    return GroupDescription(group, DEAD, "", "", None, ())


def describe(
    group: str, state: str, protocol_type: str, protocol: str | None, members: Iterable[tuple[WireMember, Bytes]]
) -> GroupDescription:
    """Return a group's description. `members` has each member with the bytes of its assignment."""
    is_consumers = protocol_type == PROTOCOL_TYPE
    found = tuple(
        GroupMember(
            one.member_id, one.group_instance_id, one.client_id, one.client_host, assigned(data) if is_consumers else None
        )
        for one, data in members
    )
    return GroupDescription(group, state, protocol_type, protocol or "", None, found)


def describe_stored(group: str, stored: StoredGroup, name_of: Callable[[uuid.UUID], str]) -> GroupDescription:
    """Return the description of a group in its last written state. `name_of` returns a topic's name by its id."""
    if stored.modern is not None:
        members = tuple(_modern_member(member, name_of) for member in stored.modern.members)
        return GroupDescription(group, state_of(stored), stored.modern.type, "", None, members, stored.modern.type)
    metadata = stored.metadata
    if metadata is None:
        return GroupDescription(group, EMPTY, "", "", None, ())
    classic = ((one, one.assignment) for one in metadata.members)
    return describe(group, state_of(stored), metadata.protocol_type, metadata.protocol, classic)


def _modern_member(member: ModernMember, name_of: Callable[[uuid.UUID], str]) -> GroupMember:
    assigned = None
    if member.assigned is not None:
        assigned = tuple(sorted(TopicPartition(name_of(one.topic_id), one.partition) for one in member.assigned))
    return GroupMember(member.member_id, member.group_instance_id, member.client_id, member.client_host, assigned)


def list_stored(groups: Mapping[str, StoredGroup]) -> list[GroupListing]:
    """Return groups as brokers list them, sorted by name."""
    return [_listing(name, one) for name, one in sorted(groups.items())]


def _listing(name: str, one: StoredGroup) -> GroupListing:
    if one.modern is not None:
        return GroupListing(name, state_of(one), one.modern.type, None, one.modern.type)
    return GroupListing(name, state_of(one), "" if one.metadata is None else one.metadata.protocol_type, None)


def state_of(stored: StoredGroup) -> str:
    """Return Kafka's name of a group's state, derived from its records in the log."""
    if stored.modern is not None:
        return stored.modern.state or UNKNOWN
    return STABLE if stored.metadata is not None and stored.metadata.members else EMPTY


def assigned(assignment: Bytes) -> tuple[TopicPartition, ...] | None:
    """Return the partitions of a consumer's assignment; empty for an empty assignment, None if it cannot be parsed."""
    if not assignment:
        return ()
    try:
        found = read_assignment(bytes(assignment))
    except TidelogError:
        return None
    return tuple(
        TopicPartition(topic.topic, partition) for topic in found.assigned_partitions for partition in sorted(topic.partitions)
    )
