"""Groups of the newer protocols in ``__consumer_offsets``: consumer (KIP-848), share (KIP-932) and streams groups (KIP-1071).

Their committed offsets are ordinary offset records (`group_table`); `share_progress` reads a share group's progress. A group
exists from its first record until its last one is deleted. The log does not contain a group's state; it is derived as in Kafka
4.2's coordinator.

| type | state | when |
|---|---|---|
| all | Empty | it has no members |
| consumer | Assigning | the group's epoch is newer than its target assignment's epoch |
| consumer | Reconciling | a member has not reached that epoch yet, or has partitions to revoke or to wait for |
| all | Stable | otherwise |

A streams group's other states depend on its topology, which is not read. So the state of a streams group with members is unknown.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

from tidelog.errors import ProtocolError
from tidelog.wire.codec import Message
from tidelog.wire.coordinator import consumer_group, share_group, streams_group
from tidelog.wire.coordinator.versioned import decode_versioned

CLASSIC = "classic"
CONSUMER = "consumer"
SHARE = "share"
STREAMS = "streams"

_STABLE_MEMBER = 0

_CONSUMER_ORDER = (3, 4, 5, 16, 6, 7, 8)

_Kinds: TypeAlias = dict[int, tuple[str, type[Message], type[Message]]]
"""The group's type, and the message types of key and value, by key version."""

_GROUPS: _Kinds = {
    3: (CONSUMER, consumer_group.ConsumerGroupMetadataKey, consumer_group.ConsumerGroupMetadataValue),
    11: (SHARE, share_group.ShareGroupMetadataKey, share_group.ShareGroupMetadataValue),
    17: (STREAMS, streams_group.StreamsGroupMetadataKey, streams_group.StreamsGroupMetadataValue),
}
_MEMBERS: _Kinds = {
    5: (CONSUMER, consumer_group.ConsumerGroupMemberMetadataKey, consumer_group.ConsumerGroupMemberMetadataValue),
    10: (SHARE, share_group.ShareGroupMemberMetadataKey, share_group.ShareGroupMemberMetadataValue),
    19: (STREAMS, streams_group.StreamsGroupMemberMetadataKey, streams_group.StreamsGroupMemberMetadataValue),
}
_TARGETS: _Kinds = {
    6: (
        CONSUMER,
        consumer_group.ConsumerGroupTargetAssignmentMetadataKey,
        consumer_group.ConsumerGroupTargetAssignmentMetadataValue,
    )
}
_ASSIGNMENTS: _Kinds = {
    8: (
        CONSUMER,
        consumer_group.ConsumerGroupCurrentMemberAssignmentKey,
        consumer_group.ConsumerGroupCurrentMemberAssignmentValue,
    ),
    14: (SHARE, share_group.ShareGroupCurrentMemberAssignmentKey, share_group.ShareGroupCurrentMemberAssignmentValue),
}
_COORDINATED: _Kinds = {
    4: (CONSUMER, consumer_group.ConsumerGroupPartitionMetadataKey, consumer_group.ConsumerGroupPartitionMetadataValue),
    7: (CONSUMER, consumer_group.ConsumerGroupTargetAssignmentMemberKey, consumer_group.ConsumerGroupTargetAssignmentMemberValue),
    16: (CONSUMER, consumer_group.ConsumerGroupRegularExpressionKey, consumer_group.ConsumerGroupRegularExpressionValue),
}
"""The records that only a coordinator needs. They are not used to describe groups."""
_READ = _GROUPS | _MEMBERS | _TARGETS | _ASSIGNMENTS | _COORDINATED

PASSED_OVER = frozenset({9, 12, 13, 15, 18, 20, 21, 22, 23})
"""Key versions of the records that are skipped, because groups are described without them; see `wire.coordinator`."""

Records: TypeAlias = "list[tuple[Message, Message]]"


class TopicIdPartition(NamedTuple):
    """A partition of a topic identified by its id."""

    topic_id: uuid.UUID
    partition: int


class ModernMember(NamedTuple):
    """A member; `assigned` is None if its assignment is not read."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    assigned: tuple[TopicIdPartition, ...] | None
    is_reconciled: bool


class ModernGroup(NamedTuple):
    """A group as recorded in the log. `record_offset` is the offset of its newest group record."""

    type: str
    state: str | None
    members: tuple[ModernMember, ...]
    record_offset: int


class ModernRecords:
    """Collects the records of one partition in order. Only `groups` and `consumer_records` decode them."""

    def __init__(self) -> None:
        self._values: dict[int, dict[bytes, bytes]] = {number: {} for number in _READ}
        self._offsets: dict[tuple[str, bytes], int] = {}
        self.unread: Counter[str] = Counter()
        """The number of unreadable records, by description."""

    def read(self, version: int, identity: bytes, value: bytes | None, record_offset: int) -> None:
        """Add a record. `identity` is the part of its key after the version."""
        values = self._values.get(version)
        if values is None:
            if version not in PASSED_OVER:
                self.unread[f"keys of version {version}"] += 1
            return
        if value is None:
            values.pop(identity, None)
            return
        values[identity] = value
        if version in _GROUPS:
            self._offsets[_GROUPS[version][0], identity] = record_offset

    @property
    def is_empty(self) -> bool:
        """Whether no record of a group of the newer protocols has been added."""
        return not self.unread and not any(self._values.values())

    def groups(self) -> dict[str, ModernGroup]:
        """Return the groups by name. Unreadable records are counted in `unread`."""
        epochs: dict[tuple[str, str], int] = {}
        offsets: dict[tuple[str, str], int] = {}
        for kind, key, value, identity in self._decoded(_GROUPS):
            epochs[kind, key.group_id] = value.epoch
            offsets[kind, key.group_id] = self._offsets[kind, identity]
        targets = {key.group_id: value.assignment_epoch for _, key, value, _ in self._decoded(_TARGETS)}
        assignments = {(kind, key.group_id, key.member_id): value for kind, key, value, _ in self._decoded(_ASSIGNMENTS)}
        members: dict[tuple[str, str], list[ModernMember]] = {named: [] for named in epochs}
        for kind, key, value, _ in self._decoded(_MEMBERS):
            now = assignments.get((kind, key.group_id, key.member_id))
            is_reconciled = now is not None and now.state == _STABLE_MEMBER and now.member_epoch == targets.get(key.group_id, 0)
            assigned = None if kind == STREAMS else () if now is None else tuple(_partitions(now.assigned_partitions))
            instance_id = None if kind == SHARE else value.instance_id
            found = ModernMember(key.member_id, instance_id, value.client_id, value.client_host, assigned, is_reconciled)
            members.setdefault((kind, key.group_id), []).append(found)
        groups: dict[str, ModernGroup] = {}
        for (kind, group), found_members in members.items():
            offset = offsets.get((kind, group), -1)
            if group in groups and groups[group].record_offset > offset:
                continue
            is_assigned = targets.get(group, 0) >= epochs.get((kind, group), 0)
            state = _state(kind, found_members, is_assigned=is_assigned)
            groups[group] = ModernGroup(kind, state, tuple(sorted(found_members)), offset)
        return groups

    def consumer_records(self) -> dict[str, tuple[int, Records]]:
        """Return, for each consumer group by name, the offset of the group's own record, and its current records in an order in
        which a coordinator can apply them. Raises ProtocolError for a record that cannot be read.
        """
        found: dict[str, tuple[int, Records]] = {}
        for version in _CONSUMER_ORDER:
            _, key_type, value_type = _READ[version]
            head = version.to_bytes(2)
            for identity, data in self._values[version].items():
                key: Any = decode_versioned(key_type, head + identity)
                if version == _CONSUMER_ORDER[0]:
                    found[key.group_id] = self._offsets[CONSUMER, identity], []
                if key.group_id in found:
                    found[key.group_id][1].append((key, decode_versioned(value_type, data)))
        return found

    def _decoded(self, kinds: _Kinds) -> Iterator[tuple[str, Any, Any, bytes]]:
        for version, (kind, key_type, value_type) in kinds.items():
            head = version.to_bytes(2)
            for identity, data in self._values[version].items():
                try:
                    yield kind, decode_versioned(key_type, head + identity), decode_versioned(value_type, data), identity
                except ProtocolError:
                    self.unread[f"{value_type.__name__.removesuffix('Value')} that cannot be read"] += 1


def _state(kind: str, members: list[ModernMember], *, is_assigned: bool) -> str | None:
    if not members:
        return "Empty"
    if kind == STREAMS:
        return None
    if kind == CONSUMER and not is_assigned:
        return "Assigning"
    if kind == CONSUMER and not all(member.is_reconciled for member in members):
        return "Reconciling"
    return "Stable"


def _partitions(
    topics: list[consumer_group.TopicPartitions] | list[share_group.TopicPartitions],
) -> Iterator[TopicIdPartition]:
    for topic in topics:
        for partition in sorted(topic.partitions):
            yield TopicIdPartition(topic.topic_id, partition)
