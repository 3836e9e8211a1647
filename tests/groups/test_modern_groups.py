"""Groups of the newer protocols, from records of Kafka 4's schemas. Real ones: tests/interop/test_modern_groups.py."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tidelog.groups.description import GroupDescription, describe_stored, list_stored
from tidelog.groups.group_table import GroupTable
from tidelog.groups.modern_groups import PASSED_OVER, TopicIdPartition
from tidelog.groups.share_progress import ShareProgress, ShareStates
from tidelog.records.state_batches import StateBatch, StateRecord
from tidelog.wire.codec import Message
from tidelog.wire.coordinator import consumer_group as c
from tidelog.wire.coordinator import share_group as s
from tidelog.wire.coordinator import share_state as state
from tidelog.wire.coordinator import streams_group as streams
from tidelog.wire.coordinator.group_metadata import GroupMetadataKey, GroupMetadataValue
from tidelog.wire.coordinator.offset_commit import OffsetCommitKey, OffsetCommitValue
from tidelog.wire.coordinator.versioned import encode_versioned

ORDERS = uuid.UUID(int=7)
NAMES = {ORDERS: "orders"}

Records = list[tuple[bytes, bytes | None]]


def record(key: Message, value: Message | None) -> tuple[bytes, bytes | None]:
    return encode_versioned(key, key.VERSIONS[-1]), None if value is None else encode_versioned(value, value.VERSIONS[-1])


def batches(records: Records) -> list[StateBatch]:
    return [StateBatch(-1, -1, False, None, [StateRecord(offset, 0, *one)]) for offset, one in enumerate(records)]


def read(records: Records, only: str | None = None) -> GroupTable:
    table = GroupTable(only)
    table.read(batches(records))
    return table


def describe(records: Records, group: str = "g") -> GroupDescription:
    return describe_stored(group, read(records).all_groups()[group], lambda topic_id: NAMES[topic_id])


def group(epoch: int) -> tuple[bytes, bytes | None]:
    return record(c.ConsumerGroupMetadataKey("g"), c.ConsumerGroupMetadataValue(epoch))


def member(name: str = "m", instance_id: str | None = None) -> tuple[bytes, bytes | None]:
    value = c.ConsumerGroupMemberMetadataValue(instance_id, client_id="client", client_host="/h", classic_member_metadata=None)
    return record(c.ConsumerGroupMemberMetadataKey("g", name), value)


def target(epoch: int) -> tuple[bytes, bytes | None]:
    key = c.ConsumerGroupTargetAssignmentMetadataKey("g")
    return record(key, c.ConsumerGroupTargetAssignmentMetadataValue(epoch))


def current(epoch: int, partitions: Iterable[int] = (), member_state: int = 0, name: str = "m") -> tuple[bytes, bytes | None]:
    key = c.ConsumerGroupCurrentMemberAssignmentKey("g", name)
    topics = [c.TopicPartitions(ORDERS, list(partitions))]
    return record(key, c.ConsumerGroupCurrentMemberAssignmentValue(epoch, epoch - 1, member_state, topics))


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([group(1)], "Empty"),
        ([group(1), member()], "Assigning"),
        ([group(2), member(), target(1), current(1)], "Assigning"),
        ([group(1), member(), target(1)], "Reconciling"),
        ([group(2), member(), target(2), current(1)], "Reconciling"),
        ([group(2), member(), target(2), current(2, member_state=1)], "Reconciling"),
        ([group(2), member(), target(2), current(2, member_state=2)], "Reconciling"),
        ([group(2), member(), target(2), current(2), member("n"), current(1, name="n")], "Reconciling"),
        ([group(2), member(), target(2), current(2)], "Stable"),
        ([group(2), member(), target(3), current(3)], "Stable"),
    ],
)
def test_states(records: Records, expected: str) -> None:
    """ConsumerGroup.maybeUpdateGroupState."""
    found = describe(records)
    assert (found.state, found.type, found.protocol_type) == (expected, "consumer", "consumer")


def test_members_and_their_assignments() -> None:
    records = [group(2), member(instance_id="one"), target(2), current(2, [3, 1]), member("n"), current(2, name="n")]
    first, second = describe(records).members
    assert first == ("m", "one", "client", "/h", (("orders", 1), ("orders", 3)))
    assert second == ("n", None, "client", "/h", ())


def test_what_is_deleted_is_gone() -> None:
    records = [group(2), member(), target(2), current(2, [0])]
    gone = [(key, None) for key, _ in records]
    assert describe([*records, gone[1], gone[3]]).members == ()
    assert read([*records, *gone]).all_groups() == {}


def test_a_group_changes_its_protocol() -> None:
    classic = record(GroupMetadataKey("g"), GroupMetadataValue("consumer", 1, "range", None, 0, []))
    new = [group(2), member(), target(2), current(2)]
    offset = record(OffsetCommitKey("g", "orders", 0), OffsetCommitValue(offset=5))
    assert describe([offset, classic]).type == "classic"
    upgraded = read([offset, classic, (classic[0], None), *new]).all_groups()["g"]
    assert upgraded.modern is not None and upgraded.metadata is None and len(upgraded.offsets) == 1
    assert describe([classic, *new, *[(key, None) for key, _ in new], classic]).type == "classic"
    # Compaction may have taken the tombstones: what was written last counts.
    assert describe([classic, *new]).type == "consumer"
    assert describe([*new, classic]).type == "classic"


def test_a_broker_s_groups_are_as_before() -> None:
    """A coordinator of classic groups sees the offsets alone."""
    offset = record(OffsetCommitKey("g", "orders", 0), OffsetCommitValue(offset=5))
    table = read([group(1), member(), offset])
    assert table.has_modern
    (found,) = table.groups().values()
    assert found.metadata is None and found.modern is None and len(found.offsets) == 1
    assert read([group(1)]).groups() == {}


def test_one_group_alone() -> None:
    other = record(c.ConsumerGroupMetadataKey("gg"), c.ConsumerGroupMetadataValue(1))
    assert list(read([group(1), other], only="g").all_groups()) == ["g"]


def test_share_groups() -> None:
    records = [
        record(s.ShareGroupMetadataKey("g"), s.ShareGroupMetadataValue(3)),
        record(s.ShareGroupMemberMetadataKey("g", "m"), s.ShareGroupMemberMetadataValue(client_id="c", client_host="/h")),
        record(
            s.ShareGroupCurrentMemberAssignmentKey("g", "m"),
            s.ShareGroupCurrentMemberAssignmentValue(1, 0, 0, [s.TopicPartitions(ORDERS, [0])]),
        ),
    ]
    found = describe(records)
    assert (found.type, found.state) == ("share", "Stable")
    assert found.members == (("m", None, "c", "/h", (("orders", 0),)),)
    assert describe(records[:1]).state == "Empty"


def test_streams_groups() -> None:
    records = [record(streams.StreamsGroupMetadataKey("g"), streams.StreamsGroupMetadataValue(3))]
    assert [(one.type, one.state, one.protocol_type) for one in list_stored(read(records).all_groups())] == [
        ("streams", "Empty", "streams")
    ]
    value = streams.StreamsGroupMemberMetadataValue(None, client_id="c", client_host="/h", user_endpoint=streams.Endpoint("h", 1))
    found = describe([*records, record(streams.StreamsGroupMemberMetadataKey("g", "m"), value)])
    assert (found.type, found.state, found.members) == ("streams", "Unknown", (("m", None, "c", "/h", None),))


def test_what_is_not_read_is_counted() -> None:
    key, value = member("damaged")
    assert value is not None
    strange = [(version.to_bytes(2) + b"\0\1g", b"\0\0") for version in (*PASSED_OVER, 24, 24, 99)]
    table = read([group(1), member(), (key, value[:-3]), (key[:-1], value), (member("new")[0], b"\0\7"), *strange])
    (found,) = table.all_groups().values()
    assert found.modern is not None and [one.member_id for one in found.modern.members] == ["m"]
    assert table.unread == {
        "ConsumerGroupMemberMetadata that cannot be read": 3,
        "keys of version 24": 2,
        "keys of version 99": 1,
    }


PLACE = TopicIdPartition(ORDERS, 0)


def snapshot(start: int, *batches_: tuple[int, int, int], delivered: int = -1) -> tuple[bytes, bytes | None]:
    value = state.ShareSnapshotValue(
        start_offset=start,
        delivery_complete_count=delivered,
        state_batches=[state.StateBatch(first, last, kind, 1) for first, last, kind in batches_],
    )
    return record(state.ShareSnapshotKey("g", ORDERS, 0), value)


def update(start: int, *batches_: tuple[int, int, int], delivered: int = -1) -> tuple[bytes, bytes | None]:
    value = state.ShareUpdateValue(
        start_offset=start,
        delivery_complete_count=delivered,
        state_batches=[state.StateBatch(first, last, kind, 1) for first, last, kind in batches_],
    )
    return record(state.ShareUpdateKey("g", ORDERS, 0), value)


def progress(records: Records) -> ShareProgress | None:
    states = ShareStates()
    states.read(batches(records))
    assert not states.unread
    return states.progress().get("g", {}).get(PLACE)


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([snapshot(0)], (0, 0, 0)),
        ([snapshot(-1)], None),
        ([update(5)], None),
        ([snapshot(5), (snapshot(5)[0], None)], None),
        ([snapshot(5), (snapshot(5)[0], None), update(7)], None),
        ([snapshot(0, (0, 9, 2))], (0, 10, 10)),
        ([snapshot(0, (0, 9, 2), delivered=7)], (0, 10, 7)),
        ([snapshot(0, (0, 9, 2), (10, 19, 0), (20, 29, 4))], (0, 10, 20)),
        ([snapshot(0, (0, 9, 2)), update(-1, (10, 12, 4))], (0, 13, 13)),
        ([snapshot(0, (0, 9, 2)), update(4, (2, 6, 0))], (4, 4, 3)),
        ([snapshot(0, (0, 9, 2)), update(20)], (20, 20, 0)),
        ([snapshot(0, (0, 9, 2)), update(20), snapshot(3)], (3, 3, 0)),
        ([snapshot(0, (1, 2**62, 2))], (0, 0, 2**62)),
    ],
)
def test_share_progress(records: Records, expected: tuple[int, int, int] | None) -> None:
    assert progress(records) == expected


RANGES = st.tuples(st.integers(0, 30), st.integers(0, 8), st.sampled_from([0, 2, 4])).map(lambda r: (r[0], r[0] + r[1], r[2]))


@given(st.lists(st.tuples(st.integers(-1, 25), st.lists(RANGES, max_size=3)), min_size=1, max_size=5))
@examples(100)
def test_share_progress_is_a_paint_over(changes: list[tuple[int, list[tuple[int, int, int]]]]) -> None:
    start, painted = 0, dict[int, int]()
    for moved, ranges in changes:
        start = moved if moved >= 0 else start
        for first, last, kind in ranges:
            painted |= dict.fromkeys(range(first, last + 1), kind)
    done = {offset for offset, kind in painted.items() if kind in (2, 4) and offset >= start}
    after = next(offset for offset in range(start, 100) if offset not in done)
    assert progress([snapshot(0), *(update(moved, *ranges) for moved, ranges in changes)]) == (start, after, len(done))


def test_states_that_cannot_be_read_are_counted() -> None:
    key, value = snapshot(5)
    assert value is not None
    states = ShareStates()
    states.read(batches([(key, value), (key[:-2], value), (b"\0\5abc", b""), (update(6)[0], b"\0\0\1")]))
    assert states.progress()["g"][PLACE].start_offset == 5
    assert sum(states.unread.values()) == 3
