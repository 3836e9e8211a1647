"""Coordinators' records in the form of Kafka's own formatters: JSON with Kafka's field names, by topic.

::

    key    {"type": 1, "data": {"group": "readers", "topic": "flights", "partition": 0}}
    value  {"version": 3, "data": {"offset": 348, "leaderEpoch": -1, "metadata": "", "commitTimestamp": 1373414400000}}

`type` is the version with which the key begins. It identifies the kind of record, and so the type of the value. Kafka before 4.0
calls it `version`, and DumpLogSegments writes both numbers as text. In classic groups, the subscriptions and assignments of
consumers are shown as their fields, as in DumpLogSegments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from typing import Final, TypeAlias

from tidelog.errors import ProtocolError
from tidelog.model import OFFSETS_TOPIC, SHARE_GROUPS_TOPIC, TRANSACTIONS_TOPIC
from tidelog.wire.codec import Bytes, Message
from tidelog.wire.coordinator import consumer_group as c
from tidelog.wire.coordinator import share_group as s
from tidelog.wire.coordinator import streams_group as t
from tidelog.wire.coordinator.consumer_protocol import PROTOCOL_TYPE, ConsumerProtocolAssignment, ConsumerProtocolSubscription
from tidelog.wire.coordinator.group_metadata import GroupMetadataKey, GroupMetadataValue
from tidelog.wire.coordinator.offset_commit import OffsetCommitKey, OffsetCommitValue
from tidelog.wire.coordinator.share_state import ShareSnapshotKey, ShareSnapshotValue, ShareUpdateKey, ShareUpdateValue
from tidelog.wire.coordinator.transaction_log import TransactionLogKey, TransactionLogValue
from tidelog.wire.coordinator.versioned import stored_decoder, version_of
from tidelog.wire.json_form import Json, shower

_Kinds: TypeAlias = Mapping[int, tuple[type[Message], type[Message]]]


def _kinds(*pairs: tuple[type[Message], type[Message]]) -> _Kinds:
    return {version: pair for pair in pairs for version in pair[0].VERSIONS}


KINDS: Final[Mapping[str, _Kinds]] = {
    OFFSETS_TOPIC: _kinds(
        (OffsetCommitKey, OffsetCommitValue),
        (GroupMetadataKey, GroupMetadataValue),
        (c.ConsumerGroupMetadataKey, c.ConsumerGroupMetadataValue),
        (c.ConsumerGroupPartitionMetadataKey, c.ConsumerGroupPartitionMetadataValue),
        (c.ConsumerGroupMemberMetadataKey, c.ConsumerGroupMemberMetadataValue),
        (c.ConsumerGroupTargetAssignmentMetadataKey, c.ConsumerGroupTargetAssignmentMetadataValue),
        (c.ConsumerGroupTargetAssignmentMemberKey, c.ConsumerGroupTargetAssignmentMemberValue),
        (c.ConsumerGroupCurrentMemberAssignmentKey, c.ConsumerGroupCurrentMemberAssignmentValue),
        (s.ShareGroupMemberMetadataKey, s.ShareGroupMemberMetadataValue),
        (s.ShareGroupMetadataKey, s.ShareGroupMetadataValue),
        (s.ShareGroupTargetAssignmentMetadataKey, s.ShareGroupTargetAssignmentMetadataValue),
        (s.ShareGroupTargetAssignmentMemberKey, s.ShareGroupTargetAssignmentMemberValue),
        (s.ShareGroupCurrentMemberAssignmentKey, s.ShareGroupCurrentMemberAssignmentValue),
        (s.ShareGroupStatePartitionMetadataKey, s.ShareGroupStatePartitionMetadataValue),
        (c.ConsumerGroupRegularExpressionKey, c.ConsumerGroupRegularExpressionValue),
        (t.StreamsGroupMetadataKey, t.StreamsGroupMetadataValue),
        (t.StreamsGroupMemberMetadataKey, t.StreamsGroupMemberMetadataValue),
        (t.StreamsGroupTargetAssignmentMetadataKey, t.StreamsGroupTargetAssignmentMetadataValue),
        (t.StreamsGroupTargetAssignmentMemberKey, t.StreamsGroupTargetAssignmentMemberValue),
        (t.StreamsGroupCurrentMemberAssignmentKey, t.StreamsGroupCurrentMemberAssignmentValue),
        (t.StreamsGroupTopologyKey, t.StreamsGroupTopologyValue),
    ),
    TRANSACTIONS_TOPIC: _kinds((TransactionLogKey, TransactionLogValue)),
    SHARE_GROUPS_TOPIC: _kinds((ShareSnapshotKey, ShareSnapshotValue), (ShareUpdateKey, ShareUpdateValue)),
}
"""The types of keys and values, by topic and key version."""


def show_key(topic: str, key: Bytes | None) -> Json | None:
    """Return a key of an internal topic as JSON. Raises ProtocolError for a key with an unknown version, and for malformed
    bytes.
    """
    if key is None:
        return None
    version = version_of(key)
    return {"type": version, "data": _reader(_kind(topic, version)[0], version)(key, 2)}


def show_value(topic: str, key: Bytes | None, value: Bytes | None) -> Json | None:
    """Return a value of an internal topic as JSON. `key` identifies the value's type. Raises ProtocolError, like `show_key`."""
    if value is None:
        return None
    if key is None:
        raise ProtocolError(f"a record of {topic} has no key")
    version = version_of(value)
    return {"version": version, "data": _reader(_kind(topic, version_of(key))[1], version)(value, 2)}


def _kind(topic: str, version: int) -> tuple[type[Message], type[Message]]:
    kind = KINDS[topic].get(version)
    if kind is None:
        raise ProtocolError(f"a key of {topic} has an unknown version", found=version)
    return kind


@cache
def _reader(cls: type[Message], version: int) -> Callable[[Bytes, int], Json]:
    """Return the function that reads a message at a position. Raises ProtocolError for an unknown version."""
    read, show = stored_decoder(cls, version), shower(cls, version)
    if cls is GroupMetadataValue:
        return lambda data, position: _show_group(read(data, position), show)  # type: ignore[arg-type]
    return lambda data, position: show(read(data, position))


def _show_group(group: GroupMetadataValue, show: Callable[[GroupMetadataValue], Json]) -> Json:
    shown = show(group)
    if group.protocol_type == PROTOCOL_TYPE:
        for member, row in zip(group.members, shown["members"], strict=True):
            for name, cls, data in (
                ("subscription", ConsumerProtocolSubscription, member.subscription),
                ("assignment", ConsumerProtocolAssignment, member.assignment),
            ):
                with suppress(ProtocolError):  # As in DumpLogSegments, unreadable bytes are shown as bytes.
                    row[name] = _reader(cls, version_of(data))(data, 2)
    return shown
