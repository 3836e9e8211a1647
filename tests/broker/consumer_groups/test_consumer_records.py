"""The records of consumer groups are Kafka's: these bytes are from the log of Kafka 3.9.1, with topic ids that can be read.

Keys 3 to 8 of a group without patterns and without classic members are compared. `tests/interop/test_consumer_groups.py` has a
folder that goes to Kafka and back.
"""

from __future__ import annotations

import uuid

import pytest

from tidelog.broker.coordinators.consumer_groups.consumer_group import (
    Change,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    Subscription,
    TopicFacts,
    current_record,
    subscription_record,
    target_record,
)
from tidelog.broker.coordinators.consumer_groups.target_assignment import target_changes
from tidelog.broker.coordinators.groups.consumer_coordinator import entry
from tidelog.wire.coordinator import consumer_group as records

A, B, C = (uuid.UUID(bytes=letter * 16) for letter in (b"a", b"b", b"c"))
KEY = b"\x00\x01g\x00\x11member-9779ac1f-1"
MEMBER = ConsumerMember(
    "member-9779ac1f-1",
    "i1",
    client_id="raw",
    client_host="/127.0.0.1",
    subscription=Subscription(("b",)),
    rebalance_timeout_ms=60_000,
    server_assignor="range",
    epoch=2,
    previous_epoch=0,
    assigned={C: frozenset({0}), A: frozenset({0, 1, 2, 3}), B: frozenset({0, 1, 2})},
)
ALL = (
    b"\x04"
    + b"c" * 16
    + b"\x02"
    + bytes(4)
    + b"\x00"
    + b"a" * 16
    + b"\x05"
    + bytes(7)
    + b"\x01\x00\x00\x00\x02\x00\x00\x00\x03\x00"
)
ALL += b"b" * 16 + b"\x04" + bytes(7) + b"\x01\x00\x00\x00\x02\x00"


@pytest.mark.parametrize(
    ("change", "key", "value"),
    [
        (
            Change(records.ConsumerGroupMetadataKey("g"), records.ConsumerGroupMetadataValue(1)),
            b"\x00\x03\x00\x01g",
            b"\x00\x00\x00\x00\x00\x01\x00",
        ),
        (
            Change(
                records.ConsumerGroupPartitionMetadataKey("g"),
                records.ConsumerGroupPartitionMetadataValue([records.TopicMetadata(B, "b", 3)]),
            ),
            b"\x00\x04\x00\x01g",
            b"\x00\x00\x02" + b"b" * 16 + b"\x02b\x00\x00\x00\x03\x01\x00\x00",
        ),
        (
            subscription_record("g", MEMBER),
            b"\x00\x05" + KEY,
            b"\x00\x00\x03i1\x00\x04raw\x0b/127.0.0.1\x02\x02b\x01\x00\x00\xea`\x06range\x01\x00\x01\x00",
        ),
        (target_changes("g", {}, {}, 3)[-1], b"\x00\x06\x00\x01g", b"\x00\x00\x00\x00\x00\x03\x00"),
        (target_record("g", MEMBER.member_id, MEMBER.assigned), b"\x00\x07" + KEY, b"\x00\x00" + ALL + b"\x00"),
        (current_record("g", MEMBER), b"\x00\x08" + KEY, b"\x00\x00\x00\x00\x00\x02" + bytes(5) + ALL + b"\x01\x00"),
    ],
    ids=["group", "topics", "member", "target epoch", "target", "current"],
)
def test_kafkas_records(change: Change, key: bytes, value: bytes) -> None:
    assert entry(change) == (key, value)


def test_a_group_is_what_its_records_say() -> None:
    group = ConsumerGroup("g")
    group.apply([subscription_record("g", MEMBER), current_record("g", MEMBER)])
    assert group.members == {MEMBER.member_id: MEMBER}
    assert group.owners == {(topic, one): MEMBER.member_id for topic, held in MEMBER.assigned.items() for one in held}
    key = records.ConsumerGroupCurrentMemberAssignmentKey("g", MEMBER.member_id)
    group.apply([Change(key, records.ConsumerGroupCurrentMemberAssignmentValue(3, 2, 99, [], []))])
    assert group.members[MEMBER.member_id].state is MemberState.UNKNOWN and not group.owners
    group.apply([Change(key, None)])
    assert group.members[MEMBER.member_id].epoch == -1
    group.apply(group.tombstones())
    assert not (group.members or group.targets or group.static_members or group.subscriptions or group.epoch)


def test_topics_with_racks_are_read() -> None:
    """Kafka 3.9.1 adds the racks of replicas, which no assignor uses."""
    metadata = records.TopicMetadata(A, "a", 1, [records.PartitionMetadata(0, ["r1"])])
    group = ConsumerGroup("g")
    key = records.ConsumerGroupPartitionMetadataKey("g")
    group.apply([Change(key, records.ConsumerGroupPartitionMetadataValue([metadata]))])
    assert group.topics == {"a": TopicFacts(A, 1)}
