"""What coordinators keep: bytes by hand, every version there and back, and bytes that are no such message."""

from __future__ import annotations

import contextlib
import random
import uuid

import pytest
from kio.schema.consumer_protocol_assignment.v3.data import ConsumerProtocolAssignment as TheirAssignment
from kio.schema.consumer_protocol_subscription.v3.data import ConsumerProtocolSubscription as TheirSubscription
from kio.serial import entity_reader

from tests.fields import check_fields
from tests.wire.random_messages import random_struct, stored_classes
from tidelog.errors import ProtocolError
from tidelog.wire.coordinator.consumer_protocol import (
    AssignedTopic,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    read_assignment,
)
from tidelog.wire.coordinator.group_metadata import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from tidelog.wire.coordinator.offset_commit import OffsetCommitKey, OffsetCommitValue
from tidelog.wire.coordinator.transaction_log import PartitionsSchema, TransactionLogKey, TransactionLogValue
from tidelog.wire.coordinator.versioned import decode_versioned, encode_versioned, version_of
from tidelog.wire.fields import REQUESTS


def test_offsets_by_hand() -> None:
    assert encode_versioned(OffsetCommitKey("g", "t", 3), 1) == b"\0\1\0\1g\0\1t\0\0\0\3"
    head, at = b"\0\0\0\0\0\0\0\x07", b"\0\0\0\0\0\0\0\x09"
    value = OffsetCommitValue(7, 2, "m", 9)
    assert encode_versioned(value, 0) == b"\0\0" + head + b"\0\1m" + at
    assert encode_versioned(value, 3) == b"\0\3" + head + b"\0\0\0\2" + b"\0\1m" + at
    assert encode_versioned(value, 4) == b"\0\4" + head + b"\0\0\0\2" + b"\2m" + at + b"\0"
    expiring = OffsetCommitValue(7, metadata="m", commit_timestamp=9, expire_timestamp=10)
    assert encode_versioned(expiring, 1) == b"\0\1" + head + b"\0\1m" + at + b"\0\0\0\0\0\0\0\x0a"
    named = OffsetCommitValue(7, 2, "m", 9, topic_id=uuid.UUID(int=1))
    assert encode_versioned(named, 4).endswith(at + b"\1\0\x10" + bytes(15) + b"\1")


def test_groups_by_hand() -> None:
    assert encode_versioned(GroupMetadataKey("g"), 2) == b"\0\2\0\1g"
    member = MemberMetadata("m", "i", "c", "/h", 1, 2, b"s", b"a")
    value = GroupMetadataValue("consumer", 4, "range", "m", 5, [member])
    head = b"\0\x08consumer\0\0\0\4\0\5range\0\1m"
    rest = b"\0\1c\0\2/h\0\0\0\1\0\0\0\2\0\0\0\1s\0\0\0\1a"
    assert encode_versioned(value, 3) == b"\0\3" + head + bytes(7) + b"\5" + b"\0\0\0\1\0\1m\0\1i" + rest
    assert encode_versioned(value, 2) == b"\0\2" + head + bytes(7) + b"\5" + b"\0\0\0\1\0\1m" + rest
    assert encode_versioned(value, 1) == b"\0\1" + head + b"\0\0\0\1\0\1m" + rest
    empty = GroupMetadataValue("", 0, None, None, -1)
    assert encode_versioned(empty, 3) == b"\0\3\0\0\0\0\0\0" + b"\xff" * 12 + bytes(4)


def test_transactions_by_hand() -> None:
    assert encode_versioned(TransactionLogKey("tx"), 0) == b"\0\0\0\2tx"
    value = TransactionLogValue(
        producer_id=1,
        producer_epoch=2,
        transaction_timeout_ms=3,
        transaction_status=1,
        transaction_partitions=[PartitionsSchema("t", [0, 5])],
        transaction_last_update_timestamp_ms=8,
        transaction_start_timestamp_ms=9,
    )
    head = bytes(7) + b"\1" + b"\0\2" + b"\0\0\0\3" + b"\1"
    times = bytes(7) + b"\x08" + bytes(7) + b"\x09"
    assert encode_versioned(value, 0) == b"\0\0" + head + b"\0\0\0\1\0\1t\0\0\0\2\0\0\0\0\0\0\0\5" + times
    assert encode_versioned(value, 1) == b"\0\1" + head + b"\2\2t\3\0\0\0\0\0\0\0\5\0" + times + b"\0"
    none = TransactionLogValue(1, transaction_partitions=None, client_transaction_version=2)
    assert b"\xff\xff\xff\xff" in encode_versioned(none, 0)
    assert encode_versioned(none, 1).endswith(b"\1\2\2\0\2")


def test_there_and_back() -> None:
    for cls in stored_classes():
        for version in cls.VERSIONS:
            for seed in range(5):
                message = random_struct(cls, version, random.Random(seed))
                data = encode_versioned(message, version)
                assert version_of(data) == version
                assert decode_versioned(cls, data) == message
                assert decode_versioned(cls, memoryview(data + b"more")) == message


def test_what_is_stored_is_no_request() -> None:
    assert -1 not in REQUESTS


def test_no_stored_message() -> None:
    key = encode_versioned(OffsetCommitKey("group", "topic", 3), 1)
    for end in range(len(key)):
        with pytest.raises(ProtocolError):
            decode_versioned(OffsetCommitKey, key[:end])
    for version in (b"\0\2", b"\xff\xff", b"\x7f\xff"):
        with pytest.raises(ProtocolError, match="expected 0 to 1"):
            decode_versioned(OffsetCommitKey, version + key[2:])
    with pytest.raises(ProtocolError, match="no version"):
        version_of(b"\0")


def test_changed_bytes() -> None:
    """Whatever stands in a record, it is a message or a ProtocolError."""
    rng = random.Random(1)
    for cls in stored_classes():
        sound = encode_versioned(random_struct(cls, cls.VERSIONS[-1], random.Random(3)), cls.VERSIONS[-1])
        for _ in range(100):
            changed = bytearray(sound)
            changed[rng.randrange(1, len(changed))] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            with contextlib.suppress(ProtocolError):
                assert isinstance(decode_versioned(cls, changed), cls)


def test_members_subscriptions_and_assignments() -> None:
    subscription = ConsumerProtocolSubscription(["a", "b"], b"x", [AssignedTopic("a", [1, 2])], 7, "rack")
    data = encode_versioned(subscription, 3)
    theirs = entity_reader(TheirSubscription)(data, 2)[0]
    check_fields(theirs, topics=("a", "b"), user_data=b"x", generation_id=7, rack_id="rack")
    assert [(one.topic, one.partitions) for one in theirs.owned_partitions] == [("a", (1, 2))]

    assignment = ConsumerProtocolAssignment([AssignedTopic("a", [1, 2])], None)
    data = encode_versioned(assignment, 1)
    assert [(one.topic, one.partitions) for one in entity_reader(TheirAssignment)(data, 2)[0].assigned_partitions] == [
        ("a", (1, 2))
    ]
    assert read_assignment(data) == assignment
    for bad in (b"", b"\0", b"\xff\xff" + data[2:], data[:-1]):
        with pytest.raises(ProtocolError):
            read_assignment(bad)
