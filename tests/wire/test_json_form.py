"""Records of internal topics as JSON. Kafka's own tools judge it in tests/interop/test_internal_topics.py."""

from __future__ import annotations

import json
import random
import uuid

import pytest

from tests.wire.random_messages import random_struct, stored_classes
from tidelog.errors import ProtocolError
from tidelog.model import OFFSETS_TOPIC, SHARE_GROUPS_TOPIC, TRANSACTIONS_TOPIC
from tidelog.wire.codec import Message
from tidelog.wire.coordinator.consumer_group import ConsumerGroupMemberMetadataValue, ConsumerGroupMetadataValue
from tidelog.wire.coordinator.consumer_protocol import AssignedTopic, ConsumerProtocolAssignment, ConsumerProtocolSubscription
from tidelog.wire.coordinator.group_metadata import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from tidelog.wire.coordinator.json_form import KINDS, show_key, show_value
from tidelog.wire.coordinator.offset_commit import OffsetCommitKey, OffsetCommitValue
from tidelog.wire.coordinator.share_state import ShareSnapshotKey
from tidelog.wire.coordinator.transaction_log import TransactionLogKey, TransactionLogValue
from tidelog.wire.coordinator.versioned import encode_versioned
from tidelog.wire.fields import Field
from tidelog.wire.json_form import show_fields

KEY = encode_versioned(OffsetCommitKey("readers", "flights", 2), 1)


def test_offsets() -> None:
    assert show_key(OFFSETS_TOPIC, KEY) == {"type": 1, "data": {"group": "readers", "topic": "flights", "partition": 2}}
    value = OffsetCommitValue(348, 5, "m", 9, topic_id=uuid.UUID(int=1))
    plain = {"offset": 348, "metadata": "m", "commitTimestamp": 9}
    shown = {
        version: show_value(OFFSETS_TOPIC, KEY, encode_versioned(value, version))
        for version in OffsetCommitValue.VERSIONS
        if version != 1
    }
    assert shown[0] == {"version": 0, "data": plain}
    assert shown[3] == {"version": 3, "data": plain | {"leaderEpoch": 5}}
    assert shown[4] == {"version": 4, "data": plain | {"leaderEpoch": 5, "topicId": "AAAAAAAAAAAAAAAAAAAAAQ"}}
    expiring = encode_versioned(OffsetCommitValue(348, metadata="m", commit_timestamp=9, expire_timestamp=7), 1)
    assert show_value(OFFSETS_TOPIC, KEY, expiring) == {"version": 1, "data": plain | {"expireTimestamp": 7}}


def test_tagged_fields_with_their_defaults_are_left_out() -> None:
    assert show_fields(ConsumerGroupMetadataValue(3), 0) == {"epoch": 3}
    assert show_fields(ConsumerGroupMetadataValue(3, 5), 0) == {"epoch": 3, "metadataHash": 5}
    assert "classicMemberMetadata" not in show_fields(ConsumerGroupMemberMetadataValue(None), 0)
    assert show_fields(TransactionLogValue(1, transaction_partitions=None), 0)["transactionPartitions"] is None


def test_members_of_classic_groups() -> None:
    subscription = encode_versioned(ConsumerProtocolSubscription(["flights"], None), 0)
    assignment = encode_versioned(ConsumerProtocolAssignment([AssignedTopic("flights", [0, 1])], b"\1"), 0)
    key = encode_versioned(GroupMetadataKey("readers"), 2)

    def members(protocol_type: str) -> list[tuple[object, object]]:
        rows = [MemberMetadata("m", subscription=subscription, assignment=assignment), MemberMetadata("n", assignment=b"\0\x63")]
        value = encode_versioned(GroupMetadataValue(protocol_type, members=rows), 3)
        shown = show_value(OFFSETS_TOPIC, key, value)
        assert shown is not None
        return [(row["subscription"], row["assignment"]) for row in shown["data"]["members"]]

    read = ({"topics": ["flights"], "userData": None}, {"assignedPartitions": [{"topic": "flights", "partitions": [0, 1]}]})
    read[1]["userData"] = "AQ=="  # type: ignore[assignment]
    assert members("consumer") == [read, ("", "AGM=")]
    assert members("connect")[0] == ("AAAAAAABAAdmbGlnaHRz/////w==", "AAAAAAABAAdmbGlnaHRzAAAAAgAAAAAAAAABAAAAAQE=")


def test_what_cannot_be_read() -> None:
    value = encode_versioned(OffsetCommitValue(1), 3)
    assert show_key(OFFSETS_TOPIC, None) is None
    assert show_value(OFFSETS_TOPIC, KEY, None) is None
    for key in (b"", b"\0", b"\0\x63", b"\xff\xff", KEY[:-1]):
        with pytest.raises(ProtocolError):
            show_key(OFFSETS_TOPIC, key)
    for bad in (b"", b"\0", b"\0\5" + value[2:], b"\xff\xff" + value[2:], value[:-1]):
        with pytest.raises(ProtocolError):
            show_value(OFFSETS_TOPIC, KEY, bad)
    for no_key in (None, b"", b"\0\x63"):
        with pytest.raises(ProtocolError):
            show_value(OFFSETS_TOPIC, no_key, value)


def test_every_kind_of_record_and_every_version() -> None:
    kinds = {pair for of_topic in KINDS.values() for pair in of_topic.values()}
    embedded = {ConsumerProtocolSubscription, ConsumerProtocolAssignment}
    assert {cls for pair in kinds for cls in pair} == {*stored_classes()} - embedded
    assert KINDS[TRANSACTIONS_TOPIC][0][0] is TransactionLogKey
    assert KINDS[SHARE_GROUPS_TOPIC][0][0] is ShareSnapshotKey
    rng = random.Random(1)
    for topic, of_topic in KINDS.items():
        for key_version, (key_type, value_type) in of_topic.items():
            key = encode_versioned(random_struct(key_type, key_version, rng), key_version)
            for version in value_type.VERSIONS:
                value = encode_versioned(random_struct(value_type, version, rng), version)
                shown = show_value(topic, memoryview(key), memoryview(value))
                assert json.loads(json.dumps(shown)) == shown
                assert shown is not None
                names = {field.name.replace("_", "") for field in _untagged(value_type, version)}
                assert names <= {name.lower() for name in shown["data"]}


def _untagged(cls: type[Message], version: int) -> list[Field]:
    return [field for field in cls.FIELDS if version in field.versions and field.tag is None]
