"""Transactions, asked of Kafka 3.9.1 and of Tidelog in every version: begun, joined by partitions and offsets, ended, timed out.

Kafka writes the markers of a transaction after it has answered EndTxn: here both are waited for until the transaction is
complete, so that CONCURRENT_TRANSACTIONS, which says "try again", is asked again on both sides.
"""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from tests.interop.differential.crowd import Crowd
from tests.interop.differential.pair import MadeFor, Pair, Side
from tests.interop.differential.record_sets import build, records
from tests.interop.differential.requests import fetch, list_offsets, produce
from tests.interop.differential.test_groups import Group
from tests.interop.differential.test_offsets import ask, commit
from tests.interop.differential.test_offsets import fetch as fetch_offsets
from tests.patience import PATIENCE_S
from tidelog.records.builder import Producer
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tidelog.wire.messages.delete_groups import DeleteGroupsRequest
from tidelog.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from tidelog.wire.messages.describe_transactions import DescribeTransactionsRequest
from tidelog.wire.messages.end_txn import EndTxnRequest
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest
from tidelog.wire.messages.list_transactions import ListTransactionsRequest
from tidelog.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from tidelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tidelog.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest

TOPICS = ("txn-a", "txn-b")
LONG_MS = 600_000
"""No transaction is to be aborted for its time, on one side a moment before it is on the other."""
TRY_AGAIN = {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


@pytest.fixture(scope="module", autouse=True)
def topics(pair: Pair, coordinators: None) -> None:
    pair.create(*TOPICS, partitions=3)


def added(*partitions: tuple[str, int]) -> list[AddPartitionsToTxnTopic]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    return [AddPartitionsToTxnTopic(topic, indexes) for topic, indexes in by_topic.items()]


class Transactional:
    """A transactional id's producer on both sides. What it says of itself may be wrong by `id_by` and `epoch_by`."""

    count = 0

    def __init__(self, pair: Pair, transactional_id: str) -> None:
        self.pair = pair
        self.transactional_id = transactional_id
        self.ids: dict[Side, tuple[int, int]] = dict.fromkeys(pair.sides, (-1, -1))
        self.sequences: dict[tuple[str, int], int] = {}
        Transactional.count += 1
        self.stand_in = 1_000_000 * Transactional.count
        self.groups: set[str] = set()
        """Whose offsets came with the transaction that is open."""

    def init(self, version: int = 4, *, timeout_ms: int = LONG_MS, knows: bool = False, label: str = "init") -> int:
        """Get an id; `knows`: go on with the one that it has. Return the code."""
        answers = {}
        for side in self.pair.sides:
            has = self.ids[side] if knows else (-1, -1)
            answers[side] = patiently(side, InitProducerIdRequest(self.transactional_id, timeout_ms, *has), version)
            if side.last is not None and side.last.error_code == ErrorCode.NONE:
                producer_id = side.last.producer_id
                side.producers.setdefault(producer_id, self.stand_in + len(side.producers) % 1000)
                if producer_id != self.ids[side][0]:
                    side.producers[producer_id] = self.stand_in
                self.ids[side] = producer_id, side.last.producer_epoch
                answers[side]["producer_id"] = self.stand_in
        self.sequences.clear()
        kafka, tidelog = (answers[side] for side in self.pair.sides)
        self.pair.asked += 1
        self.pair.compare(f"{label} v{version}", kafka, tidelog)
        self.wait_for_offsets()
        return int(kafka["error_code"])

    def named(self, side: Side, id_by: int = 0, epoch_by: int = 0) -> tuple[int, int]:
        producer_id, epoch = self.ids[side]
        return producer_id + id_by, epoch + epoch_by

    def ask(self, label: str, message: MadeFor, version: int) -> Any:
        """Ask both, again as long as one of them says so."""
        made = [message(side) if callable(message) else message for side in self.pair.sides]
        kafka, tidelog = (patiently(side, one, version) for side, one in zip(self.pair.sides, made, strict=True))
        self.pair.asked += 1
        self.pair.compare(f"{label} v{version}", kafka, tidelog)
        return kafka

    def add(self, *partitions: tuple[str, int], version: int = 3, id_by: int = 0, epoch_by: int = 0, label: str = "add") -> Any:
        def made(side: Side) -> AddPartitionsToTxnRequest:
            named = self.named(side, id_by, epoch_by)
            if version >= 4:
                one = AddPartitionsToTxnTransaction(self.transactional_id, *named, False, added(*partitions))
                return AddPartitionsToTxnRequest([one])
            return AddPartitionsToTxnRequest([], self.transactional_id, *named, added(*partitions))

        return self.ask(label, made, version)

    def verify(
        self, *partitions: tuple[str, int], version: int = 4, id_by: int = 0, epoch_by: int = 0, label: str = "verify"
    ) -> Any:
        def made(side: Side) -> AddPartitionsToTxnRequest:
            named = self.named(side, id_by, epoch_by)
            return AddPartitionsToTxnRequest(
                [AddPartitionsToTxnTransaction(self.transactional_id, *named, True, added(*partitions))]
            )

        return self.ask(label, made, version)

    def add_offsets(self, group: str, version: int = 3, *, id_by: int = 0, epoch_by: int = 0, label: str = "add offsets") -> Any:
        return self.ask(
            label,
            lambda side: AddOffsetsToTxnRequest(self.transactional_id, *self.named(side, id_by, epoch_by), group),
            version,
        )

    def commit_offsets(
        self,
        group: str,
        offsets: dict[tuple[str, int], int],
        version: int = 4,
        *,
        id_by: int = 0,
        epoch_by: int = 0,
        label: str = "offsets",
        **member: Any,
    ) -> Any:
        by_topic: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for (topic, partition), offset in offsets.items():
            by_topic.setdefault(topic, []).append(TxnOffsetCommitRequestPartition(partition, offset, committed_metadata="t"))
        wanted = [TxnOffsetCommitRequestTopic(topic, partitions=of_topic) for topic, of_topic in by_topic.items()]
        self.groups.add(group)

        def made(side: Side) -> TxnOffsetCommitRequest:
            more = {name: value(side) if callable(value) else value for name, value in member.items()}
            named = self.named(side, id_by, epoch_by)
            return TxnOffsetCommitRequest(self.transactional_id, group, *named, topics=wanted, **more)

        return self.ask(label, made, version)

    def produce(
        self,
        topic: str,
        partition: int = 0,
        *,
        version: int = 8,
        epoch_by: int = 0,
        id_by: int = 0,
        is_transactional: bool = True,
        names: str | None = "",
        label: str = "produce",
        sequence_by: int = 0,
    ) -> int:
        """Produce two records; return Kafka's code."""
        sequence = self.sequences.get((topic, partition), 0) + sequence_by
        two = records(2, random.Random(sequence))

        def made(side: Side) -> Any:
            producer = Producer(*self.named(side, id_by, epoch_by), sequence)
            data = build(two, 2, producer=producer, is_transactional=is_transactional)
            return produce(topic, data, partition=partition, transactional_id=self.transactional_id if names == "" else names)

        answer = self.ask(label, made, version)
        code = int(answer["responses"][0]["partition_responses"][0]["error_code"]) if isinstance(answer, dict) else -1
        if code == ErrorCode.NONE and not epoch_by and not id_by:
            self.sequences[topic, partition] = sequence + 2
        return code

    def end(self, is_commit: bool = True, version: int = 3, *, id_by: int = 0, epoch_by: int = 0, label: str = "end") -> Any:
        answer = self.ask(
            label,
            lambda side: EndTxnRequest(self.transactional_id, *self.named(side, id_by, epoch_by), is_commit),
            version,
        )
        self.wait_until_complete()
        return answer

    def wait_until_complete(self) -> None:
        """Wait until no marker is still to be written."""
        for side in self.pair.sides:
            deadline = time.monotonic() + PATIENCE_S
            while True:
                side.ask(DescribeTransactionsRequest([self.transactional_id]), 0, has_answer=True)
                if not side.last.transaction_states[0].transaction_state.startswith("Prepare"):
                    break
                if time.monotonic() > deadline:
                    raise TimeoutError((side.name, side.last))
                time.sleep(0.002)
        self.wait_for_offsets()

    def wait_for_offsets(self) -> None:
        """Wait until Kafka reports the groups what Tidelog does, for a while: what is reported is compared by who asks for it.

        Kafka's groups hear of a transaction's end from a thread of its own, after the transaction is complete.
        """
        for group in self.groups:
            asked = fetch_offsets(group, None, 7, require_stable=True)
            tidelog = in_order(self.pair.tidelog.ask(asked, 7, has_answer=True))
            deadline = time.monotonic() + PATIENCE_S
            while in_order(self.pair.kafka.ask(asked, 7, has_answer=True)) != tidelog and time.monotonic() < deadline:
                time.sleep(0.002)
        self.groups.clear()

    def describe(self, label: str = "describe") -> Any:
        return ask(self.pair, label, DescribeTransactionsRequest([self.transactional_id]), 0)


def patiently(side: Side, message: Any, version: int) -> Any:
    """Ask one side, again as long as it says that it is busy."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = side.ask(message, version, has_answer=True)
        if not (TRY_AGAIN & set(codes_in(answer))):
            return in_order(answer)
        if time.monotonic() >= deadline:
            raise TimeoutError(f"{side.name} has been busy for {PATIENCE_S} s: {answer}")
        time.sleep(0.005)


def in_order(value: Any) -> Any:
    """Lists of topics and partitions come out of hash maps."""
    if isinstance(value, dict):
        return {key: in_order(one) for key, one in value.items()}
    return sorted((in_order(one) for one in value), key=repr) if isinstance(value, list) else value


def codes_in(value: Any) -> list[int]:
    if isinstance(value, dict):
        own = [one for key, one in value.items() if key.endswith("error_code")]
        return own + [code for one in value.values() for code in codes_in(one)]
    return [code for one in value for code in codes_in(one)] if isinstance(value, list) else []


def compare_logs(pair: Pair, label: str, topic: str, partitions: tuple[int, ...] = (0, 1)) -> None:
    """What each isolation level is given, where the log ends for it, and what the log knows of its producers."""
    for partition in partitions:
        for isolation in (0, 1):
            pair.ask(f"{label}: log {partition} {isolation}", fetch(topic, partition=partition, isolation_level=isolation), 11)
            for timestamp in (-1, -2, 0, 1_600_000_000_001):
                asked = list_offsets(topic, timestamp, partition=partition, isolation_level=isolation)
                pair.ask(f"{label}: offset {partition} {timestamp} {isolation}", asked, 7)
    ask(pair, f"{label}: producers", DescribeProducersRequest([TopicRequest(topic, list(partitions))]), 0)


@pytest.mark.parametrize("version", range(6))
def test_ids(pair: Pair, version: int) -> None:
    for timeout_ms in (0, -1, 1, 900_000, 900_001, 1 << 30):
        one = Transactional(pair, f"ids-{version}-{timeout_ms}")
        one.init(version, timeout_ms=timeout_ms, label=f"timeout {timeout_ms}")
        ask(pair, f"idempotent {timeout_ms}", InitProducerIdRequest(None, timeout_ms), version)
    ask(pair, "empty id", InitProducerIdRequest("", 1000), version)
    one = Transactional(pair, f"ids-{version}")
    one.init(version)
    one.init(version, label="again")
    one.describe()
    if version >= 3:
        one.init(version, knows=True, label="again, with what it has")
        for has in ((5, -1), (-1, 5), (-2, -2), (1 << 40, 0)):
            ask(pair, f"idempotent with {has}", InitProducerIdRequest(None, 1000, *has), version)
            ask(pair, f"transactional with {has}", InitProducerIdRequest(one.transactional_id, 1000, *has), version)
            ask(pair, f"unknown with {has}", InitProducerIdRequest(f"ids-{version}-{has[0]}", 1000, *has), version)
        old = dict(one.ids)
        one.init(version, label="a newer one")
        for by in (0, -1, 2):
            one.ask(
                f"an older one by {by}",
                lambda side, by=by: InitProducerIdRequest(one.transactional_id, LONG_MS, old[side][0], old[side][1] + by),  # type: ignore[misc]
                version,
            )
        one.describe()
    one.add(("txn-a", 0))
    one.init(version, label="while a transaction is open")
    one.describe()
    if version >= 3:
        one.add(("txn-a", 0))
        one.init(version, knows=True, label="going on while one is open")
        one.describe()
    compare_logs(pair, "ids", "txn-a", (0,))
    pair.check()


@pytest.mark.parametrize("version", range(6))
def test_partitions(pair: Pair, version: int) -> None:
    one = Transactional(pair, f"partitions-{version}")
    one.add(("txn-a", 0), version=version, label="before any id")
    one.init()
    for partitions in ([], [("nowhere", 0)], [("txn-a", 3)], [("txn-a", -1)], [("txn-a", 0), ("nowhere", 0)], [("", 0)]):
        one.add(*partitions, version=version, label=f"{partitions}")
    one.describe()
    for id_by, epoch_by in ((1, 0), (0, 1), (0, -1), (1 << 40, 0)):
        one.add(("txn-a", 0), version=version, id_by=id_by, epoch_by=epoch_by, label=f"{id_by} {epoch_by}")
    one.add(("txn-a", 0), ("txn-b", 1), version=version)
    one.add(("txn-a", 0), version=version, label="again")
    one.add(("txn-a", 0), ("txn-a", 1), version=version, label="one more")
    one.add(("txn-a", 1), ("txn-a", 1), version=version, label="a partition twice")
    one.add(("__consumer_offsets", 0), version=version, label="internal")
    one.describe()
    for what in ("", "unknown"):
        one.ask(
            f"of {what!r}",
            lambda side, what=what: AddPartitionsToTxnRequest(  # type: ignore[misc]
                [AddPartitionsToTxnTransaction(what, *one.ids[side], False, added(("txn-a", 0)))] if version >= 4 else [],
                *((what, *one.ids[side], added(("txn-a", 0))) if version < 4 else ("", 0, 0, [])),
            ),
            version,
        )
    if version >= 4:
        other = Transactional(pair, f"partitions-other-{version}")
        other.init()
        one.verify(("txn-a", 0), version=version)
        one.verify(("txn-a", 2), version=version, label="verify what is not in it")
        one.verify(("txn-a", 0), ("txn-a", 2), ("nowhere", 1), version=version, label="verify several")
        one.verify(("txn-a", 0), version=version, epoch_by=1, label="verify another epoch")
        one.verify(("txn-a", 0), version=version, id_by=1, label="verify another id")
        other.verify(("txn-a", 0), version=version, label="verify without a transaction")
        ask(
            pair,
            "several",
            lambda side: AddPartitionsToTxnRequest(
                [
                    AddPartitionsToTxnTransaction(one.transactional_id, *one.ids[side], False, added(("txn-a", 2))),
                    AddPartitionsToTxnTransaction(other.transactional_id, *other.ids[side], True, added(("txn-a", 2))),
                    AddPartitionsToTxnTransaction("unknown", *other.ids[side], False, added(("txn-a", 2), ("txn-b", 0))),
                ]
            ),
            version,
        )
        if version == 5:
            ask(pair, "none", AddPartitionsToTxnRequest(), version)
    one.end(version=min(version, 4))
    one.verify(("txn-a", 0), label="verify after the end")
    one.describe()
    pair.check()


@pytest.mark.parametrize("version", range(5))
def test_ends(pair: Pair, version: int) -> None:
    one = Transactional(pair, f"ends-{version}")
    for is_commit in (True, False):
        one.end(is_commit, version, label=f"before any id {is_commit}")
    ask(pair, "empty id", EndTxnRequest("", 1, 0, True), version)
    one.init()
    for first, second in ((True, True), (False, False), (True, False), (False, True)):
        one.end(first, version, label=f"nothing to end {first} before {second}")
        one.add(("txn-a", 1))
        one.produce("txn-a", 1)
        for id_by, epoch_by in ((1, 0), (0, 1), (0, -1)):
            one.end(first, version, id_by=id_by, epoch_by=epoch_by, label=f"wrong by {id_by} {epoch_by}")
        one.end(first, version, label=f"end {first}")
        one.describe()
        one.end(second, version, label=f"{second} after {first}")
        one.produce("txn-a", 1, label="after the end")
    compare_logs(pair, "ends", "txn-a", (1,))
    pair.check()


@pytest.mark.parametrize("version", range(3, 12))
def test_produce(pair: Pair, version: int) -> None:
    topic = f"txn-produce-{version}"
    pair.create(topic, partitions=2)
    one = Transactional(pair, topic)
    one.init()
    one.produce(topic, version=version, label="before it is added")
    one.add((topic, 0))
    one.produce(topic, version=version, is_transactional=False, label="not in a transaction")
    one.produce(topic, version=version, names=None, label="without the id")
    one.produce(topic, version=version, names="other", label="with another id")
    one.produce(topic, version=version, names="", label="with an empty id")
    one.produce(topic, version=version, epoch_by=1, label="another epoch")
    one.produce(topic, version=version, epoch_by=-1, label="an epoch of the past")
    one.produce(topic, version=version, id_by=1, label="another producer")
    one.produce(topic, version=version)
    compare_logs(pair, "open", topic)
    one.produce(topic, 1, version=version, label="another partition")
    one.produce(topic, version=version, sequence_by=5, label="out of order")
    one.produce(topic, version=version, sequence_by=-2, label="a duplicate")
    one.produce(topic, version=version, names=None, label="without the id")
    one.produce(topic, version=version, is_transactional=False, names=None, label="not in the transaction")
    old = dict(one.ids)
    one.init(label="fences the old one, aborts")
    compare_logs(pair, "aborted", topic)
    one.add((topic, 0))
    new, one.ids = one.ids, old
    one.produce(topic, version=version, label="fenced")
    one.ids = new
    one.produce(topic, version=version, label="the new one")
    one.end()
    one.produce(topic, version=version, label="after the end")
    compare_logs(pair, "committed", topic)
    pair.check()


def test_isolation(pair: Pair) -> None:
    """Several producers with open, committed and aborted transactions in one log, read in every version."""
    topic = "txn-isolation"
    pair.create(topic)
    for side in pair.sides:
        side.compares_tails = False
    a, b, c = (Transactional(pair, f"isolation-{name}") for name in "abc")
    plain = build(records(1, random.Random(5)), 2)
    for one in (a, b, c):
        one.init()
        one.add((topic, 0))
    pair.ask("plain", produce(topic, plain), 7)
    a.produce(topic)
    b.produce(topic)
    pair.ask("plain", produce(topic, plain), 7)
    for when, ending in (("three open", None), ("a aborted", a), ("b committed", b)):
        if ending is not None:
            ending.end(is_commit=ending is b)
        c.produce(topic)
        for isolation in (0, 1):
            for offset in range(12):
                for version in (4, 10, 11) if offset % 4 == 0 else (11,):
                    pair.ask(f"{when}: from {offset} {isolation}", fetch(topic, offset, isolation_level=isolation), version)
                pair.ask(
                    f"{when}: a little from {offset} {isolation}",
                    fetch(topic, offset, isolation_level=isolation, partition_max_bytes=100),
                    11,
                )
            pair.ask(
                f"{when}: by id {isolation}",
                lambda side, isolation=isolation: fetch(topic, isolation_level=isolation, topic_id=side.topic_ids[topic]),  # type: ignore[misc]
                13,
            )
            for version in range(2, 10):
                for timestamp in (-1, -2, -3, 0, 1_600_000_000_000, 1_600_000_000_001, 1 << 50):
                    if timestamp == -3 and version < 7:
                        continue
                    asked = list_offsets(topic, timestamp, isolation_level=isolation)
                    pair.ask(f"{when}: {timestamp} {isolation}", asked, version)
        ask(pair, f"{when}: producers", DescribeProducersRequest([TopicRequest(topic, [0])]), 0)
    c.end(False)
    compare_logs(pair, "all ended", topic, (0,))
    for side in pair.sides:
        side.compares_tails = True
    pair.check()


@pytest.mark.parametrize("version", range(5))
def test_offsets(pair: Pair, version: int) -> None:
    """Offsets of a group that come with a transaction."""
    group = f"txn-offsets-{version}"
    one = Transactional(pair, group)
    both = {("txn-a", 0): 5, ("txn-b", 2): 7}
    add_version = min(version, 4)
    one.add_offsets(group, add_version, label="before any id")
    one.commit_offsets(group, both, version, label="before any id")
    one.init()
    one.commit_offsets(group, both, version, label="before it is added")
    for id_by, epoch_by in ((1, 0), (0, 1), (0, -1)):
        one.add_offsets(group, add_version, id_by=id_by, epoch_by=epoch_by, label=f"add by {id_by} {epoch_by}")
    one.add_offsets("", add_version, label="no group")
    one.add_offsets(group, add_version)
    one.describe()
    for id_by, epoch_by in ((1, 0), (0, 1), (0, -1)):
        one.commit_offsets(group, both, version, id_by=id_by, epoch_by=epoch_by, label=f"offsets by {id_by} {epoch_by}")
    one.commit_offsets("", both, version, label="no group")
    one.commit_offsets(group, {("nowhere", 0): 5, ("txn-a", 9): 1, ("txn-a", 1): 3}, version, label="unknown partitions")
    one.commit_offsets(group, {}, version, label="nothing")
    if version >= 3:
        for member in (
            {"generation_id": 1, "member_id": "m"},
            {"member_id": "m"},
            {"group_instance_id": "i"},
            {"generation_id": 1},
        ):
            one.commit_offsets(group, both, version, label=f"{member}", **member)
    one.commit_offsets(group, both, version)
    compare_committed(pair, "open", group)
    # What nobody commits in a transaction is there at once, and is older than what the transaction brings.
    ask(pair, "nobody commits", commit(group, {"txn-a": [(0, 1), (1, 1)]}), 8)
    compare_committed(pair, "open, and others committed", group)
    one.end()
    compare_committed(pair, "committed", group)
    one.add_offsets(group, add_version, label="add again")
    one.commit_offsets(group, {("txn-a", 0): 100, ("txn-a", 2): 100}, version)
    ask(pair, "delete with offsets pending", DeleteGroupsRequest([group]), 2)
    topics = [OffsetDeleteRequestTopic("txn-a", [OffsetDeleteRequestPartition(2), OffsetDeleteRequestPartition(1)])]
    ask(pair, "delete offsets that are pending", OffsetDeleteRequest(group, topics), 0)
    compare_committed(pair, "open again", group)
    one.end(False)
    compare_committed(pair, "aborted", group)
    pair.check()


def compare_committed(pair: Pair, label: str, group: str) -> None:
    wanted = {"txn-a": [0, 1, 2], "txn-b": [2]}
    for version, stable in ((5, False), (7, False), (7, True), (9, True)):
        for what in (None, wanted):
            ask(pair, f"{label}: {stable} {bool(what)}", fetch_offsets(group, what, version, require_stable=stable), version)


def test_offsets_of_members(pair: Pair) -> None:
    """A member's generation fences (KIP-447)."""
    crowd = Crowd(pair)
    group = Group(crowd, "txn-members")
    one = Transactional(pair, "txn-members")
    one.init()
    one.add_offsets(group.group_id)
    offsets = {("txn-a", 0): 5}
    group.join("a", "range", instance="i-a")
    by_a: dict[str, Any] = {"member_id": lambda side: crowd.member_id(side, "a"), "group_instance_id": "i-a"}
    one.commit_offsets(group.group_id, offsets, generation_id=1, label="before the assignment", **by_a)
    group.sync("a", "a", instance="i-a")
    for generation in (-1, 0, 1, 2):
        one.commit_offsets(group.group_id, offsets, generation_id=generation, label=f"generation {generation}", **by_a)
        one.commit_offsets(group.group_id, offsets, generation_id=generation, member_id="x", label=f"unknown {generation}")
    one.commit_offsets(group.group_id, offsets, label="nobody")
    one.commit_offsets(group.group_id, offsets, generation_id=1, member_id="x", group_instance_id="i-a", label="fenced instance")
    group.join("b", "range", version=3)
    one.commit_offsets(group.group_id, offsets, generation_id=1, label="while it rebalances", **by_a)
    one.end()
    compare_committed(pair, "members", group.group_id)
    crowd.close()
    pair.check()


@pytest.mark.parametrize("version", [0, 1])
def test_markers(pair: Pair, version: int) -> None:
    """Markers that somebody writes by hand, and transactions that hang."""
    topic = f"txn-markers-{version}"
    pair.create(topic, partitions=2)
    one = Transactional(pair, topic)
    one.init()
    one.init()
    one.add((topic, 0))
    one.produce(topic)

    def mark(
        label: str, *, epoch_by: int = 0, commits: bool = False, coordinator: int = 0, of: str = topic, at: tuple[int, ...] = (0,)
    ) -> None:
        def made(side: Side) -> WriteTxnMarkersRequest:
            producer_id, epoch = one.ids[side]
            topics = [WritableTxnMarkerTopic(of, list(at))]
            return WriteTxnMarkersRequest([WritableTxnMarker(producer_id, epoch + epoch_by, commits, topics, coordinator)])

        ask(pair, label, made, version)
        compare_logs(pair, label, topic)

    mark("an old epoch", epoch_by=-1)
    mark("unknown partitions", at=(2, -1))
    mark("unknown topic", of="nowhere")
    mark("abort")
    mark("abort again")
    mark("a partition without records", at=(1,))
    mark("a newer coordinator", coordinator=5, commits=True)
    mark("an older coordinator", coordinator=4)
    mark("a newer epoch", epoch_by=1, coordinator=5)
    one.produce(topic, label="fenced")
    ask(pair, "nothing", WriteTxnMarkersRequest(), version)
    ask(
        pair,
        "several",
        WriteTxnMarkersRequest(
            [
                WritableTxnMarker(1 << 40, 0, True, [WritableTxnMarkerTopic(topic, [0, 1])], 0),
                WritableTxnMarker(1 << 41, 0, False, [WritableTxnMarkerTopic(topic, [0]), WritableTxnMarkerTopic("x", [0])], 0),
                WritableTxnMarker(1 << 40, 0, False, [WritableTxnMarkerTopic(topic, [0])], 0),
            ]
        ),
        version,
    )
    compare_logs(pair, "several", topic)
    pair.check()


def test_timeouts(pair: Pair) -> None:
    """A transaction that takes too long is aborted, and its producer fenced."""
    topic = "txn-timeouts"
    pair.create(topic)
    one = Transactional(pair, topic)
    # Long enough to get as far as the records, whatever else the machine does.
    one.init(timeout_ms=12_000)
    one.add((topic, 0))
    one.produce(topic)
    for side in pair.sides:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            side.ask(DescribeTransactionsRequest([topic]), 0, has_answer=True)
            if side.last.transaction_states[0].transaction_state == "CompleteAbort":
                break
            if time.monotonic() > deadline:
                raise TimeoutError(f"{side.name} has not aborted it: {side.last}")
            time.sleep(0.05)
    one.describe()
    for version in (1, 2, 4):
        one.end(version=version, label="too late")
        one.add((topic, 0), version=min(version, 3), label="too late")
    one.produce(topic, label="too late")
    compare_logs(pair, "timed out", topic, (0,))
    one.init(knows=True, label="goes on")
    one.describe()
    pair.check()


@pytest.mark.parametrize("version", [0, 1])
def test_lists(pair: Pair, version: int) -> None:
    one = Transactional(pair, f"lists-{version}")
    one.init()
    one.add(("txn-a", 2), ("txn-b", 0))
    ask(pair, "described", DescribeTransactionsRequest([one.transactional_id, "unknown", "", one.transactional_id]), 0)
    ask(pair, "nobody", DescribeTransactionsRequest(), 0)
    states: tuple[list[str], ...] = (
        [],
        ["Ongoing"],
        ["Empty", "CompleteCommit"],
        ["ongoing"],
        ["nonsense", ""],
        ["nonsense", "Ongoing"],
        ["Dead"],
    )
    for texts in states:
        for ids in (False, True):
            # Of one at rest, Kafka remembers when its last one began.
            for duration in (-1, 0, 1 << 40) if version and texts == ["Ongoing"] else (-1,):

                def made(
                    side: Side, texts: list[str] = texts, ids: bool = ids, duration: int = duration
                ) -> ListTransactionsRequest:
                    wanted = [one.ids[side][0], 1 << 50] if ids else []
                    return ListTransactionsRequest(texts, wanted, duration)

                ask(pair, f"list {texts} {ids} {duration}", made, version)
    one.end(False)
    for topics in (
        [TopicRequest("txn-a", [0, 1, 2, 3, -1])],
        [TopicRequest("nowhere", [0]), TopicRequest("", [0]), TopicRequest("a b", [1])],
        [TopicRequest("txn-a", [])],
        [TopicRequest("__consumer_offsets", [0]), TopicRequest("__transaction_state", [0, 1, 2])],
        [],
    ):
        ask(pair, f"producers of {[one.name for one in topics]}", DescribeProducersRequest(topics), 0)
    pair.check()


@pytest.mark.parametrize("seed", range(4))
def test_any_order(pair: Pair, seed: int) -> None:
    """Two producers in two partitions that do anything at any time, mostly what they should."""
    rng = random.Random(seed)
    topic = f"txn-any-{seed}"
    pair.create(topic, partitions=2)
    both = [Transactional(pair, f"{topic}-{number}") for number in range(2)]
    for one in both:
        one.init()
    for number in range(100):
        one, partition = rng.choice(both), rng.randrange(2)
        wrong: dict[str, Any] = {}
        if rng.random() < 0.1:
            wrong = rng.choice(({"epoch_by": 1}, {"epoch_by": -1}, {"id_by": 1}))
        step = rng.random()
        if step < 0.3:
            one.add((topic, partition), version=rng.randrange(4), label=f"{number} add", **wrong)
        elif step < 0.7:
            is_old: dict[str, Any] = {"epoch_by": -1} if wrong else {}
            one.produce(topic, partition, version=rng.randrange(3, 12), label=f"{number} produce", **is_old)
        elif step < 0.85:
            one.end(rng.random() < 0.6, rng.randrange(5), label=f"{number} end", **wrong)
        elif step < 0.9:
            version = rng.randrange(3, 6)
            one.init(version, knows=rng.random() < 0.5, label=f"{number} init")
        elif step < 0.95:
            one.add_offsets(f"{topic}-group", rng.randrange(5), label=f"{number} add offsets", **wrong)
            one.commit_offsets(f"{topic}-group", {(topic, partition): number}, rng.randrange(5), label=f"{number} offsets")
        else:
            one.describe(f"{number} describe")
            compare_committed(pair, f"{number}", f"{topic}-group")
        if number % 20 == 19:
            compare_logs(pair, f"after {number}", topic)
    pair.check()


def test_a_newer_epoch(pair: Pair) -> None:
    """Last of all: Kafka never ends that transaction."""
    one = Transactional(pair, "txn-newer-epoch")
    one.init()
    one.add_offsets("txn-newer-epoch")
    one.commit_offsets("txn-newer-epoch", {("txn-a", 0): 1})
    one.commit_offsets("txn-newer-epoch", {("txn-a", 0): 2}, epoch_by=1, label="offsets of a newer epoch")
    one.add(("txn-b", 2))
    one.produce("txn-b", 2)
    one.produce("txn-b", 2, epoch_by=1, sequence_by=-2, label="records of a newer epoch")
    pair.check()
