"""What both brokers keep of groups and transactions: batch for batch, record for record, each value in Kafka's version of it.

The same is done on both sides; then `__consumer_offsets` and `__transaction_state` are read, and compared as far as they are
about that. Times of now and made-up ids are masked, and when an offset expires.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.interop.differential.crowd import Crowd
from tests.interop.differential.pair import Pair, Side
from tests.interop.differential.requests import fetch
from tests.interop.differential.test_groups import Group
from tests.interop.differential.test_offsets import ask, commit, delete
from tests.interop.differential.test_transactions import Transactional
from tidelog.records.batch import BatchHeader, iter_headers
from tidelog.records.control import parse_end_txn_marker
from tidelog.records.records import iter_records
from tidelog.wire.coordinator.group_metadata import GroupMetadataKey, GroupMetadataValue
from tidelog.wire.coordinator.offset_commit import OffsetCommitKey, OffsetCommitValue
from tidelog.wire.coordinator.transaction_log import TransactionLogKey, TransactionLogValue
from tidelog.wire.coordinator.versioned import decode_versioned, version_of
from tidelog.wire.fields import Struct
from tidelog.wire.messages.delete_groups import DeleteGroupsRequest
from tidelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
TIMES = {
    "commit_timestamp",
    "current_state_timestamp",
    "transaction_last_update_timestamp_ms",
    "transaction_start_timestamp_ms",
}
pytestmark = pytest.mark.usefixtures("coordinators")


@pytest.fixture
def crowd(pair: Pair) -> Iterator[Crowd]:
    one = Crowd(pair)
    yield one
    one.close()


@pytest.fixture(scope="module", autouse=True)
def topics(pair: Pair) -> None:
    pair.create("kept-a", "kept-b", partitions=2)


def batches(side: Side, topic: str) -> Iterator[tuple[BatchHeader, bytes]]:
    """Every batch of the internal topic's three partitions."""
    for partition in range(3):
        asked = ListOffsetsRequest(-1, topics=[ListOffsetsTopic(topic, [ListOffsetsPartition(partition, timestamp=-1)])])
        side.ask(asked, 1, has_answer=True)
        end, at = side.last.topics[0].partitions[0].offset, 0
        while at < end:
            side.ask(fetch(topic, at, partition=partition), 11, has_answer=True)
            data = bytes(side.last.responses[0].partitions[0].records)
            for header in iter_headers(data):
                at = header.next_offset
                yield header, data[header.position : header.end_position]


def kept(crowd: Crowd, side: Side, topic: str, name: str) -> list[Any]:
    """What is said of a group or a transactional id, and the markers of its producers."""
    found = []
    producers: set[int] = set()
    for header, data in batches(side, topic):
        rows = list(iter_records(header, data))
        if header.is_control:
            if header.producer_id in producers:
                marker = parse_end_txn_marker(rows[0].key, rows[0].value)
                found.append([masked_header(side, header), str(marker)])
            continue
        said = [entry(crowd, side, row.key, row.value) for row in rows if subject(topic, row.key) == name]
        if said:
            assert len(said) == len(rows)
            if header.is_transactional:
                producers.add(header.producer_id)
            times: set[Any] = {"now" if side.masked(row.timestamp, "timestamp") == "now" else row.timestamp for row in rows}
            found.append([masked_header(side, header), sorted(times), *sorted(said, key=repr)])
    return found


def masked_header(side: Side, header: BatchHeader) -> dict[str, Any]:
    return {
        "attributes": header.attributes,
        "records": header.record_count,
        "producer": side.masked(header.producer_id, "producer_id"),
        "epoch": header.producer_epoch,
        # Kafka's commits by no producer have sequence 0.
        "sequence": header.base_sequence if header.has_producer_id else "none",
        "leader epoch": header.leader_epoch,
        "time": side.masked(header.max_timestamp, "timestamp"),
    }


def subject(topic: str, key: bytes | None) -> str | None:
    """The group or transactional id that a record is about."""
    assert key is not None
    if topic == TRANSACTIONS:
        return decode_versioned(TransactionLogKey, key).transactional_id
    version = version_of(key)
    if version > 2:
        return None
    return decode_versioned(GroupMetadataKey, key).group if version == 2 else decode_versioned(OffsetCommitKey, key).group


def entry(crowd: Crowd, side: Side, key: bytes | None, value: bytes | None) -> list[Any]:
    assert key is not None
    version = version_of(key)
    read: Any = None
    if value is not None:
        cls = OffsetCommitValue if version == 1 else GroupMetadataValue if version == 2 else TransactionLogValue
        read = decode_versioned(cls, value)
    shown = (None if value is None else version_of(value), plain(crowd, side, read))
    return [key.hex(), *shown]


def plain(crowd: Crowd, side: Side, value: Any, name: str = "") -> Any:
    if isinstance(value, Struct):
        return {field.name: plain(crowd, side, getattr(value, field.name), field.name) for field in value.FIELDS}
    if isinstance(value, list):
        return sorted((plain(crowd, side, one, name) for one in value), key=repr)
    if name in TIMES:
        return side.masked(value, "timestamp")
    if name == "expire_timestamp" and value > 0:
        return "later"
    return crowd.masked(side, side.masked(value, name))


def compare(pair: Pair, crowd: Crowd, topic: str, name: str) -> None:
    kafka, tidelog = (kept(crowd, side, topic, name) for side in pair.sides)
    assert len(kafka) > 3, kafka
    pair.compare(f"{topic} {name} v0", kafka, tidelog)
    pair.check()


def test_a_group(pair: Pair, crowd: Crowd) -> None:
    group = Group(crowd, "kept")
    group.join("a", "range", "sticky")
    group.join("a", "range", "sticky")
    group.sync("a", "a")
    group.join("b", "range", "sticky", instance="i-b", session_ms=30_000, rebalance_ms=20_000)
    group.join("a", "range", "sticky")
    group.sync("b", instance="i-b")
    group.sync("a", "a", "b")
    group.join("b", "range", "sticky", instance="i-b", member_id="", label="back")
    group.join(
        "b", "range", "sticky", instance="i-b", member_id="", session_ms=31_000, version=8, label="back, with another session"
    )
    ask(
        pair,
        "a member commits",
        lambda side: commit(
            "kept", {"kept-a": [(0, 5), (1, 6)], "kept-b": [(0, 7)]}, generation=2, member_id=crowd.member_id(side, "a"), epoch=3
        ),
        9,
    )
    group.leave("b", ("", "i-b"))
    group.join("a", "sticky")
    group.sync("a")
    group.leave("a")
    group.describe()
    for version, more in ((1, {"timestamp": 1_600_000_000_000}), (2, {"retention_ms": 86_400_000}), (6, {"metadata": None})):
        ask(pair, "nobody commits", commit("kept", {"kept-a": [(0, version)]}, **more), version)
    ask(pair, "delete one", delete("kept", {"kept-a": [1]}), 0)
    ask(pair, "delete all", delete("kept", {"kept-a": [0], "kept-b": [0, 1]}), 0)
    ask(pair, "commit once more", commit("kept", {"kept-b": [(1, 1)]}), 8)
    ask(pair, "delete the group", DeleteGroupsRequest(["kept"]), 2)
    compare(pair, crowd, OFFSETS, "kept")


def test_a_transaction(pair: Pair, crowd: Crowd) -> None:
    one = Transactional(pair, "kept-transaction")
    one.init(timeout_ms=50_000)
    one.add(("kept-a", 0))
    one.add(("kept-b", 1), ("kept-a", 1))
    one.produce("kept-a")
    one.add_offsets("kept-transaction")
    one.commit_offsets("kept-transaction", {("kept-a", 0): 5, ("kept-b", 1): 6})
    one.commit_offsets("kept-transaction", {("kept-a", 0): 7})
    one.end()
    one.add_offsets("kept-transaction")
    one.commit_offsets("kept-transaction", {("kept-a", 0): 9})
    one.end(False)
    one.add(("kept-a", 1))
    one.init(timeout_ms=40_000, label="fences, aborts")
    one.init(knows=True, label="goes on")
    one.end(False)
    compare(pair, crowd, TRANSACTIONS, "kept-transaction")
    compare(pair, crowd, OFFSETS, "kept-transaction")
