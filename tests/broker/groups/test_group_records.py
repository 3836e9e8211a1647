"""Records of ``__consumer_offsets``: Kafka's bytes, in all versions; what loading makes of them.

Names in brackets are those of Kafka's tests (GroupMetadataManagerTest) that establish the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.conftest import RunningBroker
from tests.broker.groups.offset_requests import Offset, commit, fetch, loaded
from tests.fields import check_fields
from tidelog.broker.coordinators.groups import group_records
from tidelog.broker.coordinators.groups.group import Group, GroupState, Member
from tidelog.broker.coordinators.groups.group_records import group_entry, read_groups
from tidelog.broker.coordinators.groups.subscriptions import subscriptions, topics_in
from tidelog.errors import InvalidArgumentError, ProtocolError
from tidelog.groups.group_offsets import CommittedOffset
from tidelog.groups.offset_records import group_key, offset_entries, offset_entry, offset_key
from tidelog.model import TopicPartition
from tidelog.records.control import ControlType
from tidelog.records.state_batches import StateBatch, StateRecord
from tidelog.wire.coordinator.consumer_protocol import ConsumerProtocolSubscription
from tidelog.wire.coordinator.group_metadata import GroupMetadataValue, MemberMetadata
from tidelog.wire.coordinator.offset_commit import OffsetCommitKey, OffsetCommitValue
from tidelog.wire.coordinator.versioned import decode_versioned, encode_versioned, version_of
from tidelog.wire.error_codes import ErrorCode

NOW_MS = 1_373_450_400_000
KEY = TopicPartition("events", 2)
OTHER = TopicPartition("other", 0)
ONE = CommittedOffset(7, 3, "words", NOW_MS)


class Log:
    """Batches, as a log would have them."""

    def __init__(self) -> None:
        self.batches: list[StateBatch] = []
        self.offsets = count()

    def write(self, *entries: tuple[bytes | None, bytes | None], producer_id: int = -1) -> None:
        records = [StateRecord(next(self.offsets), NOW_MS, key, value) for key, value in entries]
        self.batches.append(StateBatch(producer_id, 0, producer_id >= 0, None, records))

    def end(self, producer_id: int, marker: ControlType | None) -> None:
        next(self.offsets)
        self.batches.append(StateBatch(producer_id, 0, True, marker, []))

    def groups(self) -> dict[str, Group]:
        return read_groups(self.batches, NOW_MS)

    def offsets_of(self, group: str) -> dict[TopicPartition, int]:
        groups = self.groups()
        return {key: one.offset for key, one in groups[group].offsets.all()} if group in groups else {}


def committed(offset: int, key: TopicPartition = KEY, group: str = "g") -> tuple[bytes, bytes | None]:
    return offset_entry(group, key, CommittedOffset(offset, -1, "", NOW_MS))


TEXTS = st.one_of(st.text(max_size=8), st.sampled_from(["", "\N{SNOWMAN}" * 10_922, "x" * 32_767]))
INT64 = st.integers(-(2**63), 2**63 - 1)
OFFSETS = st.builds(CommittedOffset, INT64, st.integers(-1, 2**31 - 1), TEXTS, INT64, st.sampled_from([-1, NOW_MS]))
KEYS = st.builds(TopicPartition, TEXTS, st.integers(0, 2**31 - 1))


@given(group=TEXTS, offsets=st.lists(st.tuples(KEYS, OFFSETS), max_size=4))
def test_what_is_committed_together(group: str, offsets: list[tuple[TopicPartition, CommittedOffset]]) -> None:
    assert offset_entries(group, offsets) == [offset_entry(group, key, one) for key, one in offsets]


@pytest.mark.parametrize("text", ["x" * 32_768, "\N{SNOWMAN}" * 10_923, "\udcff"])
def test_texts_that_no_record_holds(text: str) -> None:
    for group, topic, metadata in ((text, "t", ""), ("g", text, ""), ("g", "t", text)):
        with pytest.raises(InvalidArgumentError):
            offset_entries(group, [(TopicPartition(topic, 0), CommittedOffset(1, -1, metadata, NOW_MS))])


def members(value: GroupMetadataValue, version: int) -> Group:
    log = Log()
    log.write((group_key("g"), encode_versioned(value, version)))
    return log.groups()["g"]


def test_kafkas_bytes() -> None:
    """[testSerdeOffsetCommitValue, …WithExpireTimestamp, testSerialize…ToHighestNonFlexibleVersion]"""
    key = bytes.fromhex("0001 0001 67 0006 6576656e7473 00000002")
    assert offset_entry("g", KEY, ONE) == (
        key,
        bytes.fromhex("0003 0000000000000007 00000003 0005 776f726473 0000013fc805f100"),
    )
    expiring = ONE._replace(expire_timestamp_ms=NOW_MS + 1)
    assert offset_entry("g", KEY, expiring) == (
        key,
        bytes.fromhex("0001 0000000000000007 0005 776f726473 0000013fc805f100 0000013fc805f101"),
    )
    group = Group("g", NOW_MS)
    group.generation_id = 2
    group.protocol_type = "consumer"
    assert group_entry(group) == (
        bytes.fromhex("0002 0001 67"),
        bytes.fromhex("0003 0008 636f6e73756d6572 00000002 ffff ffff 0000013fc805f100 00000000"),
    )
    group.protocol_name, group.leader_id = "range", "m"
    group.members["m"] = member = Member(
        "m",
        group_instance_id="i",
        client_id="c",
        client_host="/h",
        rebalance_timeout_ms=2,
        session_timeout_ms=3,
        protocol_type="consumer",
        protocols={"other": b"!", "range": b"ab"},
    )
    member.assignment = b"cde"
    assert group_entry(group)[1] == bytes.fromhex(
        "0003 0008 636f6e73756d6572 00000002 0005 72616e6765 0001 6d 0000013fc805f100 00000001"
        "0001 6d 0001 69 0001 63 0002 2f68 00000002 00000003 00000002 6162 00000003 636465"
    )


def test_versions_of_older_protocols() -> None:
    """What brokers of 0.9 to 2.2 can read: a member without an instance, an offset without an epoch."""
    group = Group("g", NOW_MS)
    group.generation_id, group.protocol_type, group.protocol_name, group.leader_id = 2, "consumer", "range", "m"
    group.members["m"] = Member(
        "m",
        group_instance_id="i",
        client_id="c",
        client_host="/h",
        rebalance_timeout_ms=2,
        session_timeout_ms=3,
        protocol_type="consumer",
        protocols={"range": b"ab"},
    )
    for version in (0, 1, 2, 3):
        _, value = group_entry(group, version)
        assert value is not None and version_of(value) == version
        (member,) = decode_versioned(GroupMetadataValue, value).members
        assert (member.member_id, member.subscription) == ("m", b"ab")
        assert member.group_instance_id == ("i" if version == 3 else None)
    for version in (1, 2, 3):
        (entry,) = offset_entries("g", [(KEY, ONE)], version)
        assert entry == offset_entry("g", KEY, ONE, version) and entry[1] is not None
        read = decode_versioned(OffsetCommitValue, entry[1])
        assert (version_of(entry[1]), read.offset, read.expire_timestamp) == (version, ONE.offset, -1)


def test_every_version_of_an_offset() -> None:
    """[testLoadOffsetFromOldCommit, testLoadOffsetWithExplicitRetention, testDeserializeFutureOffsetCommitValue]"""
    for key_version in (0, 1):
        for version in range(5):
            log = Log()
            value = OffsetCommitValue(7, 3, "words", NOW_MS, NOW_MS + 9)
            key = encode_versioned(OffsetCommitKey("g", *KEY), key_version)
            log.write((key, encode_versioned(value, version) + b"more of a later release"))
            found = log.groups()["g"].offsets.get(*KEY)
            assert found is not None
            assert found[:4] == (7, 3 if version >= 3 else -1, "words", NOW_MS)
            assert found.expire_timestamp_ms == (NOW_MS + 9 if version == 1 else -1)


def test_every_version_of_a_group() -> None:
    """[testReadFromOldGroupMetadata, testCurrentStateTimestampForAllGroupMetadataVersions, testloadGroupWithStaticMember]"""
    one = MemberMetadata("m", "i", "c", "/h", 20, 30, encode_versioned(ConsumerProtocolSubscription(["events"]), 1), b"assigned")
    value = GroupMetadataValue("consumer", 5, "range", "m", NOW_MS - 9, [one])
    for version in range(5):
        group = members(value, version)
        check_fields(
            group, state=GroupState.STABLE, generation_id=5, protocol_type="consumer", protocol_name="range", leader_id="m"
        )
        assert group.state_timestamp_ms == (NOW_MS - 9 if version >= 2 else -1)
        member = group.members["m"]
        assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (30, 20 if version else 30)
        assert (member.client_id, member.client_host, member.assignment) == ("c", "/h", b"assigned")
        assert group.static_members == ({"i": "m"} if version >= 3 else {})
        metadata = subscriptions(group)
        assert metadata == [one.subscription]
        assert topics_in(metadata) == frozenset({"events"})
        empty = members(GroupMetadataValue("consumer", 6, None, None, NOW_MS), version)
        assert (empty.state, empty.generation_id, empty.leader_id, subscriptions(empty)) == (GroupState.EMPTY, 6, None, None)
    assert topics_in([one.subscription, b"no subscription"]) is None
    simple = members(GroupMetadataValue("", 0, None, None, NOW_MS), 3)
    assert simple.protocol_type is None


def test_the_last_record_counts() -> None:
    """[testLoadOffsetsWithTombstones, testLoadGroupWithTombstone, testLoadOffsetsAndGroup]"""
    log = Log()
    group = Group("g", NOW_MS)
    group.generation_id = 1
    log.write(committed(1), committed(2, OTHER), group_entry(group))
    log.write(committed(3))
    log.write((offset_key("g", OTHER), None))
    group.generation_id = 2
    log.write(group_entry(group), committed(9, group="alone"))
    assert log.offsets_of("g") == {KEY: 3}
    assert log.groups()["g"].generation_id == 2
    assert log.offsets_of("alone") == {KEY: 9}
    log.write((group_key("g"), None))
    assert log.groups()["g"].generation_id == 0  # of its offsets only
    log.write((offset_key("g", KEY), None))
    assert set(log.groups()) == {"alone"}


def test_transactions_count_with_their_markers() -> None:
    """[testLoadWithCommittedAndAbortedAndPendingTransactionalOffsetCommits, …FromMultipleProducers, …ConsumerWins,
    …TransactionWins, testLoadOffsetsWithEmptyControlBatch]"""
    log = Log()
    log.write(committed(1), producer_id=7)
    log.write(committed(2, OTHER), producer_id=8)
    groups = log.groups()
    assert [*groups["g"].offsets.all()] == []
    assert groups["g"].offsets.is_pending(KEY)
    log.end(7, None)  # What compaction leaves of a marker.
    log.end(7, ControlType.COMMIT)
    log.end(8, ControlType.ABORT)
    assert log.offsets_of("g") == {KEY: 1}
    assert not log.groups()["g"].offsets.has_pending
    log.write(committed(3), producer_id=7)
    log.write(committed(4))
    log.write(committed(5), producer_id=8)
    log.end(7, ControlType.COMMIT)
    assert log.offsets_of("g") == {KEY: 4}
    log.end(8, ControlType.COMMIT)
    assert log.offsets_of("g") == {KEY: 5}
    log.write(committed(6), producer_id=7)
    log.write((offset_key("g", KEY), None))
    assert log.offsets_of("g") == {}
    log.end(7, ControlType.COMMIT)
    assert log.offsets_of("g") == {KEY: 6}  # As in Kafka 3.9.1: see tests/interop/test_group_loading.py.
    log.write(committed(7), committed(8, OTHER), producer_id=7)
    log.write((offset_key("g", KEY), None), producer_id=7)
    log.end(7, ControlType.COMMIT)
    assert log.offsets_of("g") == {KEY: 6, OTHER: 8}


def test_what_is_not_a_classic_groups(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """[testReadMessageKeyCanReadUnknownMessage, testLoadGroupsAndOffsetsWillIgnoreUnknownMessage]"""
    monkeypatch.setattr(group_records, "_noted", set())
    log = Log()
    for version in (3, 7, 3, -1):
        log.write((version.to_bytes(2, "big", signed=True) + b"whatever", b"it is"), (b"\x00\x05", None))
    log.write(committed(1))
    assert log.offsets_of("g") == {KEY: 1}
    assert [record.getMessage() for record in caplog.records] == [
        "the log has groups of newer protocols (consumer, share, streams): this broker keeps them but does not coordinate "
        "them; for consumer groups, set group.coordinator.rebalance.protocols=classic,consumer"
    ]


@pytest.mark.parametrize(
    "entry",
    [
        (None, b"no key"),
        (b"", None),
        (b"\x00", None),
        (b"\x00\x01\x00\x09g", b"\x00\x03"),
        (offset_key("g", KEY), b"\x00\x03short"),
        (offset_key("g", KEY), b"\x00\x09of another time"),
        (group_key("g"), b"\x00\x03\xff\xff"),
        (group_key("g"), b"\x00\x05"),
    ],
)
def test_damage_is_told(entry: tuple[bytes | None, bytes | None]) -> None:
    """[testShouldThrowExceptionForUnsupportedGroupMetadataVersion]"""
    log = Log()
    log.write(entry)
    with pytest.raises(ProtocolError):
        log.groups()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    broker = RunningBroker(tmp_path / "data", offsets_topic_num_partitions=2)
    yield broker
    broker.stop()


def test_damage_stops_one_partition(broker: RunningBroker, caplog: pytest.LogCaptureFixture) -> None:
    """Its groups have no coordinator, and lose nothing; the others go on."""
    broker.create_topic("events", 1)
    groups = {broker.node.groups.log.partition_of(name): name for name in ("a", "b")}
    assert set(groups) == {0, 1}
    with broker.client() as client:
        for name in groups.values():
            assert commit(client, name, {("events", 0): Offset(5)}) == {("events", 0): 0}
    broker.on_loop(lambda: broker.node.groups.log.append(1, [(offset_key(groups[1], KEY), b"\x00\x09")]))
    broker.stop()
    broker.start()
    loaded(broker)
    assert (
        "__consumer_offsets-1 has no coordinator, because the partition cannot be read: "
        "OffsetCommitValue is stored in an unknown version" in caplog.text
    )
    with broker.client() as client:
        assert fetch(client, groups[0]) == {("events", 0): Offset(5)}
        assert fetch(client, groups[1]) == ErrorCode.NOT_COORDINATOR
        assert commit(client, groups[1], {("events", 0): Offset(6)}) == {("events", 0): ErrorCode.NOT_COORDINATOR}
